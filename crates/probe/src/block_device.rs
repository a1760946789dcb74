// SPDX-License-Identifier: MIT OR Apache-2.0
//! A block device of this computer (Linux): past the page cache, one request at a time, in the computer's own time.
//! In the simulated machine that time is virtual.

use crate::disk::{Disk, Facts, Stop, BLOCK_BYTES, MIB};
use rustix::fd::OwnedFd;
use rustix::fs::{fsync, major, minor, open, seek, stat, FileType, Mode, OFlags, SeekFrom};
use rustix::io::{pread, pwrite, Errno};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is written: nobody reads it, and a simulated drive stores a repeated word in no space.
const WORD: [u8; 8] = *b"SHINGLE\n";
const WRITE: &str = "a write";
/// A signal is noticed so soon.
const NAP: Duration = Duration::from_millis(50);

/// Where a device is, in `/dev` and in sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// As the user said.
    pub path: PathBuf,
    /// Major and minor number, as `8:16`.
    pub number: String,
    /// `/sys/dev/block/8:16`.
    pub sys: PathBuf,
}

impl Place {
    /// Looks a path up; it must be a block device.
    pub fn find(path: &Path) -> Result<Place, String> {
        let name = path.display();
        let status = stat(path).map_err(|why| match why {
            Errno::NOENT => format!("there is no {name}: expected a disk such as /dev/sdb"),
            _ => format!("{name}: {}", sentence(why)),
        })?;
        if FileType::from_raw_mode(status.st_mode) != FileType::BlockDevice {
            return Err(format!(
                "{name} is no block device: expected a disk such as /dev/sdb"
            ));
        }
        let number = format!("{}:{}", major(status.st_rdev), minor(status.st_rdev));
        let sys = PathBuf::from(format!("/sys/dev/block/{number}"));
        Ok(Place {
            path: path.to_owned(),
            number,
            sys,
        })
    }

    /// A file of sysfs, without the newline.
    pub fn attribute(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.sys.join(name))
            .ok()
            .map(|text| text.trim().to_string())
    }

    /// Refuses what is no whole disk, has zones, or is in use.
    pub fn refuse_unless_free(&self) -> Result<(), String> {
        let name = self.path.display();
        if self.sys.join("partition").exists() {
            return Err(format!("{name} is a partition: expected a whole disk"));
        }
        if let Some(kind) = self
            .attribute("queue/zoned")
            .filter(|kind| kind == "host-managed")
        {
            return Err(format!("{name} is {kind}: it tells its zones when asked (blkzone report), there is nothing to probe"));
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let swaps: Vec<String> = fs::read_to_string("/proc/swaps")
            .unwrap_or_default()
            .lines()
            .skip(1)
            .filter_map(|line| Place::find(Path::new(line.split_whitespace().next()?)).ok())
            .map(|place| place.number)
            .collect();
        match in_use(&self.sys, &self.number, &mounts, &swaps) {
            Some(why) => Err(format!(
                "{name} is in use ({why}): expected a disk that nobody uses"
            )),
            None => Ok(()),
        }
    }
}

/// The device of `sys` and its partitions, by number.
fn with_partitions(sys: &Path, number: &str) -> Vec<(String, PathBuf)> {
    let mut all = vec![(number.to_string(), sys.to_owned())];
    for entry in fs::read_dir(sys).into_iter().flatten().flatten() {
        let folder = entry.path();
        if let (true, Ok(dev)) = (
            folder.join("partition").exists(),
            fs::read_to_string(folder.join("dev")),
        ) {
            all.push((dev.trim().to_string(), folder));
        }
    }
    all
}

/// Who uses the device or one of its partitions, if anybody.
fn in_use(sys: &Path, number: &str, mountinfo: &str, swaps: &[String]) -> Option<String> {
    for (number, folder) in with_partitions(sys, number) {
        // Fields of mountinfo: id, parent, major:minor, root, mount point, …
        let mounted = mountinfo
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .find(|fields| fields.get(2) == Some(&number.as_str()));
        if let Some(fields) = mounted {
            return Some(format!(
                "{number} is mounted at {}",
                fields.get(4).unwrap_or(&"?")
            ));
        }
        let holder = fs::read_dir(folder.join("holders"))
            .into_iter()
            .flatten()
            .flatten()
            .next();
        if let Some(holder) = holder {
            return Some(format!(
                "{} holds {number}",
                holder.file_name().to_string_lossy()
            ));
        }
        if swaps.contains(&number) {
            return Some(format!("{number} is swap"));
        }
    }
    None
}

fn sentence(why: Errno) -> String {
    std::io::Error::from(why).to_string()
}

/// A buffer at an address that direct I/O takes.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new() -> Self {
        let mut bytes: Vec<u8> = WORD
            .iter()
            .copied()
            .cycle()
            .take((MIB + BLOCK_BYTES) as usize)
            .collect();
        let start = bytes.as_ptr().align_offset(BLOCK_BYTES as usize);
        // The word is repeated from the block's first byte on, wherever that is.
        for (i, byte) in bytes[start..].iter_mut().enumerate() {
            *byte = WORD[i % WORD.len()];
        }
        Buffer { bytes, start }
    }

    fn slice(&mut self, bytes: u64) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + bytes as usize]
    }
}

/// See the module's head.
pub struct BlockDevice {
    fd: OwnedFd,
    facts: Facts,
    /// Read into, written from: apart, so that what is written stays what it is.
    read: Buffer,
    written: Buffer,
    writable: bool,
    stopped: Arc<AtomicBool>,
    start: Instant,
}

impl BlockDevice {
    /// Opens a disk for nobody else; `stopped` ends the probe between two requests.
    pub fn open(place: &Place, writable: bool, stopped: Arc<AtomicBool>) -> Result<Self, String> {
        place.refuse_unless_free()?;
        Self::open_with(place, writable, OFlags::EXCL, stopped)
    }

    /// Opens a disk for reading while others use it.
    pub fn share(place: &Place, stopped: Arc<AtomicBool>) -> Result<Self, String> {
        Self::open_with(place, false, OFlags::empty(), stopped)
    }

    #[allow(clippy::disallowed_methods)] // a real disk's time is the computer's
    fn open_with(
        place: &Place,
        writable: bool,
        more: OFlags,
        stopped: Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let name = place.path.display();
        let access = if writable {
            OFlags::RDWR
        } else {
            OFlags::RDONLY
        };
        let flags = access | OFlags::DIRECT | OFlags::CLOEXEC | more;
        let fd = open(&place.path, flags, Mode::empty()).map_err(|why| match why {
            Errno::BUSY => format!("{name} is in use: expected a disk that nobody uses"),
            _ => format!("{name} cannot be opened: {}", sentence(why)),
        })?;
        let size =
            seek(&fd, SeekFrom::End(0)).map_err(|why| format!("{name}: {}", sentence(why)))?;
        let number = |attribute: &str, otherwise: u64| -> u64 {
            place
                .attribute(attribute)
                .and_then(|text| text.parse().ok())
                .unwrap_or(otherwise)
        };
        let facts = Facts {
            name: place
                .path
                .file_name()
                .map_or("disk".into(), |n| n.to_string_lossy().into_owned()),
            model: place
                .attribute("device/model")
                .unwrap_or_else(|| "unknown model".into()),
            capacity_bytes: size / BLOCK_BYTES * BLOCK_BYTES,
            logical_block_bytes: number("queue/logical_block_size", 512) as u32,
            physical_block_bytes: number("queue/physical_block_size", 4096) as u32,
            max_request_bytes: (number("queue/max_sectors_kb", 1024) << 10).min(MIB),
        };
        Ok(BlockDevice {
            fd,
            facts,
            read: Buffer::new(),
            written: Buffer::new(),
            writable,
            stopped,
            start: Instant::now(),
        })
    }

    fn go_on(&self) -> Result<(), Stop> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Stop::Interrupted);
        }
        Ok(())
    }

    fn failed(&self, what: &str, offset: u64, why: Errno) -> Stop {
        let said = format!(
            "{}: {what} at byte {offset} failed: {}",
            self.facts.name,
            sentence(why)
        );
        match why {
            Errno::INTR => Stop::Interrupted,
            // What Linux makes of ILLEGAL REQUEST and of other errors of the disk.
            Errno::IO | Errno::REMOTEIO if what == WRITE => Stop::Refused(said),
            _ => Stop::Failed(said),
        }
    }
}

impl Disk for BlockDevice {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn read(&mut self, offset: u64, bytes: u64) -> Result<(), Stop> {
        self.go_on()?;
        let done = pread(&self.fd, self.read.slice(bytes), offset);
        match done.map_err(|why| self.failed("a read", offset, why))? as u64 {
            n if n == bytes => Ok(()),
            n => Err(Stop::Failed(format!(
                "{}: a read at byte {offset} gave {n} of {bytes} bytes",
                self.facts.name
            ))),
        }
    }

    fn write(&mut self, offset: u64, bytes: u64) -> Result<(), Stop> {
        self.go_on()?;
        if !self.writable {
            return Err(Stop::Failed(format!(
                "{} may only be read",
                self.facts.name
            )));
        }
        let done = pwrite(&self.fd, self.written.slice(bytes), offset);
        match done.map_err(|why| self.failed(WRITE, offset, why))? as u64 {
            n if n == bytes => Ok(()),
            n => Err(Stop::Failed(format!(
                "{}: a write at byte {offset} took {n} of {bytes} bytes",
                self.facts.name
            ))),
        }
    }

    fn flush(&mut self) -> Result<(), Stop> {
        self.go_on()?;
        fsync(&self.fd).map_err(|why| self.failed("a flush", 0, why))
    }

    fn idle(&mut self, ns: u64) -> Result<(), Stop> {
        let end_ns = self.now_ns() + ns;
        loop {
            self.go_on()?;
            match end_ns.checked_sub(self.now_ns()) {
                None | Some(0) => return Ok(()),
                Some(left) => std::thread::sleep(NAP.min(Duration::from_nanos(left))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(name: &str) -> PathBuf {
        let top = std::env::temp_dir().join(format!("shingle-probe-{name}-{}", std::process::id()));
        for folder in ["holders", "sdz1/holders"] {
            fs::create_dir_all(top.join(folder)).unwrap();
        }
        fs::write(top.join("sdz1/partition"), "1\n").unwrap();
        fs::write(top.join("sdz1/dev"), "8:401\n").unwrap();
        top
    }

    #[test]
    fn a_disk_is_in_use_if_one_of_its_partitions_is() {
        let top = tree("use");
        let other = "21 1 8:2 / / rw - ext4 /dev/sda2 rw\n";
        assert_eq!(in_use(&top, "8:400", other, &[]), None);
        let mounted = format!("{other}22 1 8:401 / /srv/data rw - xfs /dev/sdz1 rw\n");
        let why = in_use(&top, "8:400", &mounted, &[]).unwrap();
        assert!(why.contains("8:401") && why.contains("/srv/data"), "{why}");
        let why = in_use(&top, "8:400", other, &["8:401".into()]).unwrap();
        assert!(why.contains("swap"), "{why}");
        fs::create_dir(top.join("sdz1/holders/dm-3")).unwrap();
        let why = in_use(&top, "8:400", other, &[]).unwrap();
        assert!(why.contains("dm-3"), "{why}");
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn what_is_no_block_device_is_refused_in_a_sentence() {
        let why = Place::find(Path::new("/dev/null")).unwrap_err();
        assert!(why.contains("/dev/null is no block device"), "{why}");
        let why = Place::find(Path::new("/dev/nothing-of-this-name")).unwrap_err();
        assert!(
            why.contains("there is no /dev/nothing-of-this-name:"),
            "{why}"
        );
    }

    #[test]
    fn what_is_written_is_one_word_from_each_block_s_first_byte_on() {
        let mut buffer = Buffer::new();
        let block = buffer.slice(BLOCK_BYTES);
        assert_eq!(block.as_ptr() as usize % BLOCK_BYTES as usize, 0);
        assert!(block.chunks(8).all(|word| word == WORD));
    }
}
