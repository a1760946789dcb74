// SPDX-License-Identifier: MIT OR Apache-2.0
//! TarDirs and TarFiles: `tar` of a tree, to a file or to nowhere.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tar::{Builder, EntryType, Header};

use crate::error::{IoContext, Result};
use crate::meter::{Meter, Op};
use crate::report::Report;
use crate::walk::{walk, Descent, Entry, Order, Visitor};
use crate::Load;

/// Record size of GNU tar: 20 blocks of 512 bytes.
const RECORD_BYTES: usize = 20 * 512;

/// `tar` of FAST'17 §4.2.1 ("to other disk"): a directory is read, its entries
/// are looked at with lstat(2) and read as they come. The archive is a real one;
/// where it goes is not the drive under test.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tar {
    /// Tree to archive, below the load's directory.
    pub path: String,
    /// File for the archive; null: it is made and dropped.
    pub output: Option<PathBuf>,
    /// Order of the entries of a directory; `tar` takes them as they come.
    pub order: Order,
    /// Measure each call's latency (256 ns of virtual time per reading of the clock).
    pub latency: bool,
}

impl Default for Tar {
    fn default() -> Self {
        Self {
            path: "dirs".into(),
            output: None,
            order: Order::Readdir,
            latency: false,
        }
    }
}

impl Load for Tar {
    fn run(&self, dir: &Path) -> Result<Report> {
        let root = dir.join(&self.path);
        let sink: Box<dyn Write> = match &self.output {
            None => Box::new(io::sink()),
            Some(path) => Box::new(File::create(path).on("create", path)?),
        };
        let out = Counting {
            sink: BufWriter::with_capacity(RECORD_BYTES, sink),
            bytes: 0,
        };
        let base = dir.to_owned();
        let mut archiver = Archiver {
            builder: Builder::new(out),
            base,
            entries: 0,
        };
        let mut meter = Meter::new(self.latency);
        let mut report = Report::default();
        report.part("archive", || {
            archiver.add(&root, true, &mut meter)?;
            walk(
                &root,
                self.order,
                Descent::AtOnce,
                &mut archiver,
                &mut meter,
            )
        })?;
        let entries = archiver.entries;
        let mut out = archiver
            .builder
            .into_inner()
            .on("write", Path::new("archive"))?;
        out.flush().on("write", Path::new("archive"))?;
        let report = report.metered(&meter);
        Ok(report
            .detail("entries", entries)
            .detail("archive_bytes", out.bytes))
    }
}

struct Archiver<W: Write> {
    builder: Builder<W>,
    /// What is cut off from the front of names.
    base: PathBuf,
    entries: u64,
}

impl<W: Write> Visitor for Archiver<W> {
    fn entry(&mut self, entry: &Entry, meter: &mut Meter) -> Result<()> {
        self.add(&entry.path, entry.is_dir, meter)
    }
}

impl<W: Write> Archiver<W> {
    fn add(&mut self, path: &Path, is_dir: bool, meter: &mut Meter) -> Result<()> {
        let metadata = meter
            .time(Op::Stat, || fs::symlink_metadata(path))
            .on("lstat", path)?;
        let name = path.strip_prefix(&self.base).unwrap_or(path).to_owned();
        let mut header = Header::new_gnu();
        header.set_mode(metadata.permissions().mode() & 0o7777);
        header.set_uid(metadata.uid().into());
        header.set_gid(metadata.gid().into());
        header.set_mtime(metadata.mtime().max(0) as u64);
        header.set_size(0);
        self.entries += 1;
        if is_dir {
            header.set_entry_type(EntryType::Directory);
            return self
                .builder
                .append_data(&mut header, name, io::empty())
                .on("write", path);
        }
        if metadata.is_symlink() {
            let target = meter
                .time(Op::Readlink, || fs::read_link(path))
                .on("readlink", path)?;
            header.set_entry_type(EntryType::Symlink);
            return self
                .builder
                .append_link(&mut header, name, target)
                .on("write", path);
        }
        header.set_size(metadata.len());
        let file = meter.time(Op::Open, || File::open(path)).on("open", path)?;
        let data = Data {
            file,
            left: metadata.len(),
            meter,
        };
        self.builder
            .append_data(&mut header, name, data)
            .on("archive", path)
    }
}

/// The data of a file, as long as its header says: tar does not read on to meet
/// the end.
struct Data<'a> {
    file: File,
    left: u64,
    meter: &'a mut Meter,
}

impl Read for Data<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(out.len());
        if length == 0 {
            return Ok(0);
        }
        let read = self
            .meter
            .time(Op::Read, || self.file.read(&mut out[..length]))?;
        if read == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file has shrunk",
            ));
        }
        self.left -= read as u64;
        self.meter.read_bytes += read as u64;
        Ok(read)
    }
}

struct Counting<W: Write> {
    sink: W,
    bytes: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::createfiles::CreateFiles;
    use crate::testing::scratch;

    #[test]
    fn archive_unpacks_to_the_same_tree() {
        let (dir, other) = (scratch(), scratch());
        let files = CreateFiles {
            count: 60,
            file_bytes: 5000,
            ..CreateFiles::default()
        };
        files.run(dir.path()).unwrap();
        std::os::unix::fs::symlink("somewhere", dir.path().join("files/link")).unwrap();
        let output = other.path().join("a.tar");
        let load = Tar {
            path: "files".into(),
            output: Some(output.clone()),
            ..Tar::default()
        };
        let report = load.run(dir.path()).unwrap();
        assert_eq!(report.user_read_bytes, 60 * 5000);
        let bytes = fs::metadata(&output).unwrap().len();
        assert_eq!(report.details["archive_bytes"], bytes);

        tar::Archive::new(File::open(output).unwrap())
            .unpack(other.path())
            .unwrap();
        let digest = |dir: &Path| {
            let manifest = crate::manifest::Manifest {
                path: "files".into(),
                directory_sizes: false,
                ..Default::default()
            };
            manifest.run(dir).unwrap().details["sha256"].clone()
        };
        assert_eq!(digest(dir.path()), digest(other.path()));
    }

    #[test]
    fn long_paths_survive() {
        let (dir, other) = (scratch(), scratch());
        let deep = (0..30)
            .map(|_| "twelve-bytes")
            .collect::<Vec<_>>()
            .join("/");
        fs::create_dir_all(dir.path().join("dirs").join(&deep)).unwrap();
        let output = other.path().join("a.tar");
        Tar {
            output: Some(output.clone()),
            ..Tar::default()
        }
        .run(dir.path())
        .unwrap();
        tar::Archive::new(File::open(output).unwrap())
            .unpack(other.path())
            .unwrap();
        assert!(other.path().join("dirs").join(deep).is_dir());
    }
}
