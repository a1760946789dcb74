// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel said while something failed.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// The most lines that go into a message.
const LINES_MAX: usize = 6;

/// A place in the kernel's log.
pub struct Mark(Option<File>);

impl Mark {
    pub fn now() -> Self {
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let open = || -> std::io::Result<File> {
            let mut file = OpenOptions::new()
                .read(true)
                .custom_flags(flags)
                .open("/dev/kmsg")?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        Self(open().ok())
    }

    /// What was logged since, ready to be put behind a message.
    pub fn since(self) -> String {
        let Some(mut file) = self.0 else {
            return String::new();
        };
        let mut lines = Vec::new();
        let mut record = [0; 8192];
        // One record per read; the end of the log is an error, EAGAIN.
        while let Ok(length @ 1..) = file.read(&mut record) {
            lines.extend(message(&String::from_utf8_lossy(&record[..length])).map(str::to_owned));
        }
        let first = lines.len().saturating_sub(LINES_MAX);
        lines[first..]
            .iter()
            .map(|line| format!("; kernel: {line}"))
            .collect()
    }
}

/// The text of a record: `priority,sequence,time,flags;text`, then dictionary lines.
fn message(record: &str) -> Option<&str> {
    record.split_once(';')?.1.lines().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_record_is_without_its_times() {
        let record = "3,204,512000,-;EXT4-fs (shd0): bad option\n SUBSYSTEM=block\n";
        assert_eq!(message(record), Some("EXT4-fs (shd0): bad option"));
        assert_eq!(message("nonsense"), None);
    }
}
