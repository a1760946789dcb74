// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sorted list of everything in a tree, with hashes: two mounts hold the same
//! tree if their manifests are the same.
//!
//! A line is `path type mode links size hash-or-target`, separated by tabs; type
//! is one of `d f l o`; bytes of a name that are not printable are escaped. The
//! order is that of a walk in which each directory's entries are sorted by name.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{IoContext, Result};
use crate::file::with_buffer;
use crate::meter::{Meter, Op};
use crate::report::Report;
use crate::walk::{Entry, Order, Walker};
use crate::Load;

const READ_BYTES: usize = 1 << 20;

/// Lists a tree: path, type, mode, links, size, SHA-256 of the contents. The
/// report has the number of entries and the hash of the whole manifest.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Manifest {
    /// Tree to list, below the load's directory.
    pub path: String,
    /// File for the manifest; null: only its hash is reported.
    pub output: Option<PathBuf>,
    /// Names that are passed over, wherever they are.
    pub exclude: Vec<String>,
    /// Sizes and link counts of directories too: the same on two mounts of one
    /// image, not on two file systems.
    pub directory_sizes: bool,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for Manifest {
    fn default() -> Self {
        Self {
            path: ".".into(),
            output: None,
            exclude: vec!["lost+found".into()],
            directory_sizes: true,
            latency: false,
        }
    }
}

impl Load for Manifest {
    fn run(&self, dir: &Path) -> Result<Report> {
        let sink: Box<dyn Write> = match &self.output {
            None => Box::new(io::sink()),
            Some(path) => Box::new(BufWriter::new(File::create(path).on("create", path)?)),
        };
        let mut lister = Lister {
            load: self,
            walker: Walker::new(Order::Name),
            base: dir.join(&self.path),
            sink,
            digest: Sha256::new(),
            entries: 0,
        };
        let mut meter = Meter::new(self.latency);
        let mut report = Report::default();
        let root = lister.base.clone();
        report.part("list", || lister.directory(&root, &mut meter))?;
        lister.sink.flush().on("write", Path::new("manifest"))?;
        let report = report.metered(&meter).detail("entries", lister.entries);
        Ok(report.detail("sha256", hex(&lister.digest.finalize())))
    }
}

struct Lister<'a> {
    load: &'a Manifest,
    walker: Walker,
    base: PathBuf,
    sink: Box<dyn Write>,
    digest: Sha256,
    entries: u64,
}

impl Lister<'_> {
    fn directory(&mut self, dir: &Path, meter: &mut Meter) -> Result<()> {
        for entry in self.walker.read_dir(dir, meter)? {
            let name = entry.path.file_name().unwrap_or_default();
            if self
                .load
                .exclude
                .iter()
                .any(|e| e.as_bytes() == name.as_bytes())
            {
                continue;
            }
            self.entry(&entry, meter)?;
            if entry.is_dir {
                self.directory(&entry.path, meter)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, entry: &Entry, meter: &mut Meter) -> Result<()> {
        let path = &entry.path;
        let metadata = meter
            .time(Op::Stat, || fs::symlink_metadata(path))
            .on("lstat", path)?;
        let (kind, last) = if metadata.is_dir() {
            ('d', "-".to_owned())
        } else if metadata.is_file() {
            ('f', hash(path, meter)?)
        } else if metadata.is_symlink() {
            let target = meter
                .time(Op::Readlink, || fs::read_link(path))
                .on("readlink", path)?;
            ('l', escape(&target))
        } else {
            ('o', format!("{:x}", metadata.rdev()))
        };
        let hidden = metadata.is_dir() && !self.load.directory_sizes;
        let (links, size) = if hidden {
            (0, 0)
        } else {
            (metadata.nlink(), metadata.len())
        };
        let name = escape(path.strip_prefix(&self.base).unwrap_or(path));
        let mode = metadata.permissions().mode() & 0o7777;
        let line = format!("{name}\t{kind}\t{mode:o}\t{links}\t{size}\t{last}\n");
        self.digest.update(line.as_bytes());
        self.entries += 1;
        self.sink
            .write_all(line.as_bytes())
            .on("write", Path::new("manifest"))
    }
}

fn hash(path: &Path, meter: &mut Meter) -> Result<String> {
    let mut file = meter.time(Op::Open, || File::open(path)).on("open", path)?;
    let mut digest = Sha256::new();
    with_buffer(READ_BYTES, |buffer| loop {
        match meter
            .time(Op::Read, || file.read(buffer))
            .on("read", path)?
        {
            0 => return Ok(hex(&digest.finalize())),
            length => {
                meter.read_bytes += length as u64;
                digest.update(&buffer[..length]);
            }
        }
    })
}

fn escape(path: &Path) -> String {
    path.as_os_str().as_bytes().escape_ascii().to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scratch;

    fn tree(dir: &Path) {
        fs::create_dir(dir.join("b")).unwrap();
        fs::create_dir(dir.join("lost+found")).unwrap();
        fs::write(dir.join("b/two"), "2").unwrap();
        fs::write(dir.join("a\n1"), "").unwrap();
        fs::hard_link(dir.join("b/two"), dir.join("c")).unwrap();
        std::os::unix::fs::symlink("b/two", dir.join("z")).unwrap();
        for (name, mode) in [("b", 0o755), ("b/two", 0o644), ("a\n1", 0o644)] {
            fs::set_permissions(dir.join(name), PermissionsExt::from_mode(mode)).unwrap();
        }
    }

    fn run(dir: &Path, output: Option<PathBuf>) -> serde_json::Value {
        let load = Manifest {
            output,
            directory_sizes: false,
            ..Default::default()
        };
        load.run(dir).unwrap().details["sha256"].clone()
    }

    #[test]
    fn lines_say_what_is_there() {
        let (dir, out) = (scratch(), scratch());
        tree(dir.path());
        let file = out.path().join("m");
        let digest = run(dir.path(), Some(file.clone()));
        let text = fs::read_to_string(file).unwrap();
        // printf 2 | sha256sum
        let two = "d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35";
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("a\\n1\tf\t644\t1\t0\te3b0c442"),
            "{text}"
        );
        assert!(lines[1].starts_with("b\td\t755\t0\t0\t-"), "{text}");
        assert_eq!(lines[2], format!("b/two\tf\t644\t2\t1\t{two}"));
        assert_eq!(lines[3], format!("c\tf\t644\t2\t1\t{two}"));
        assert!(lines[4].ends_with("\tb/two"), "{text}");
        assert_eq!(lines.len(), 5);
        assert_eq!(digest, hex(&Sha256::digest(text.as_bytes())));
    }

    #[test]
    fn any_difference_shows() {
        let same = |change: fn(&Path)| {
            let (a, b) = (scratch(), scratch());
            tree(a.path());
            tree(b.path());
            change(b.path());
            run(a.path(), None) == run(b.path(), None)
        };
        assert!(same(|_| ()));
        assert!(!same(|dir| fs::write(dir.join("b/two"), "3").unwrap()));
        assert!(!same(|dir| fs::remove_file(dir.join("c")).unwrap()));
        assert!(!same(
            |dir| fs::rename(dir.join("c"), dir.join("d")).unwrap()
        ));
        assert!(!same(|dir| fs::set_permissions(
            dir.join("b"),
            PermissionsExt::from_mode(0o700)
        )
        .unwrap()));
    }
}
