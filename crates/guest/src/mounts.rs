// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the guest mounts for itself, and what a job asks for.

use std::ffi::CString;
use std::fs;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{mount, unmount, MountFlags, UnmountFlags};

use crate::failure::Failure;
use crate::job::Mount;
use crate::kernel_log;
use crate::outbox;

/// Mounts that every program may expect. The root is the host's, read-only: a
/// directory that the host does not have is passed over, apart from /proc, /sys
/// and /run, which the guest cannot do without.
const SYSTEM: [(&str, &str, &str, bool); 8] = [
    ("proc", "/proc", "", true),
    ("sysfs", "/sys", "", true),
    ("devtmpfs", "/dev", "", false),
    ("tmpfs", "/run", "mode=755", true),
    ("tmpfs", "/tmp", "mode=1777", false),
    ("tmpfs", "/var/tmp", "mode=1777", false),
    ("debugfs", "/sys/kernel/debug", "", false),
    ("tracefs", "/sys/kernel/tracing", "", false),
];

/// Directories below the tmpfs mounts, made after them.
const DIRECTORIES: [&str; 3] = ["/run/out", "/run/home", "/run/lock"];

pub fn mount_system() -> Result<(), Failure> {
    for (fs, dir, data, needed) in SYSTEM {
        let data = CString::new(data).expect("no NUL in a constant");
        match mount(fs, dir, fs, MountFlags::NOATIME, data.as_c_str()) {
            // EBUSY: the kernel has mounted it already.
            Ok(()) | Err(Errno::BUSY) => (),
            Err(e) if needed => return Err(Failure::system(format!("mounting {dir}"), e)),
            Err(_) => (),
        }
    }
    for dir in DIRECTORIES {
        fs::create_dir_all(dir).map_err(|e| Failure::system(dir, e))?;
    }
    mount_below_dev();
    Ok(())
}

/// Terminals and shared memory, for programs that want them.
fn mount_below_dev() {
    for (fs, dir) in [("devpts", "/dev/pts"), ("tmpfs", "/dev/shm")] {
        if fs::create_dir_all(dir).is_ok() {
            let _ = mount(fs, dir, fs, MountFlags::NOATIME, c"");
        }
    }
}

/// Mounts the lab's directory, a path of the host, at /run/out.
pub fn mount_out(host_dir: &str) -> Result<(), Failure> {
    let data = CString::new(host_dir).map_err(|_| Failure::new("shingle.out has a NUL"))?;
    let flags = MountFlags::NOATIME;
    mount("none", outbox::OUT_DIR, "hostfs", flags, data.as_c_str())
        .map_err(|e| Failure::system(format!("mounting the host's {host_dir}"), e))
}

/// The value of `name=` on the kernel's command line.
pub fn kernel_parameter(name: &str) -> Option<String> {
    find_parameter(&fs::read_to_string("/proc/cmdline").ok()?, name)
}

fn find_parameter(line: &str, name: &str) -> Option<String> {
    let mut words = line.split_ascii_whitespace();
    words
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        .map(str::to_owned)
}

/// A job's mount. On failure the kernel's own last words are in the message.
pub fn mount_step(step: &Mount) -> Result<(), Failure> {
    if !Path::new(&step.dir).is_dir() {
        fs::create_dir_all(&step.dir).map_err(|e| Failure::system(&step.dir, e))?;
    }
    let (flags, data) = split_options(&step.options);
    let data = CString::new(data).map_err(|_| Failure::new("options have a NUL"))?;
    let log = kernel_log::Mark::now();
    mount(&step.device, &step.dir, &step.fs, flags, data.as_c_str()).map_err(|e| {
        let doing = format!("mounting {} as {} on {}", step.device, step.fs, step.dir);
        let mut failure = Failure::system(doing, e);
        failure.message.push_str(&log.since());
        failure
    })
}

pub fn umount_step(dir: &str) -> Result<(), Failure> {
    let log = kernel_log::Mark::now();
    unmount(dir, UnmountFlags::empty()).map_err(|e| {
        let mut failure = Failure::system(format!("unmounting {dir}"), e);
        failure.message.push_str(&log.since());
        failure
    })
}

/// Splits mount options into the kernel's generic flags and the file system's own.
fn split_options(options: &str) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut own = Vec::new();
    for option in options.split(',').filter(|o| !o.is_empty()) {
        match generic_flag(option) {
            Some((flag, set)) => flags.set(flag, set),
            None => own.push(option),
        }
    }
    (flags, own.join(","))
}

fn generic_flag(option: &str) -> Option<(MountFlags, bool)> {
    Some(match option {
        "defaults" => (MountFlags::empty(), true),
        "ro" => (MountFlags::RDONLY, true),
        "rw" => (MountFlags::RDONLY, false),
        "noatime" => (MountFlags::NOATIME, true),
        "nodiratime" => (MountFlags::NODIRATIME, true),
        "relatime" => (MountFlags::RELATIME, true),
        "strictatime" => (MountFlags::STRICTATIME, true),
        "nodev" => (MountFlags::NODEV, true),
        "nosuid" => (MountFlags::NOSUID, true),
        "noexec" => (MountFlags::NOEXEC, true),
        "sync" => (MountFlags::SYNCHRONOUS, true),
        "dirsync" => (MountFlags::DIRSYNC, true),
        "lazytime" => (MountFlags::LAZYTIME, true),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_options_become_flags_and_the_rest_stays() {
        let (flags, own) = split_options("noatime,journal_lazy,ro,rw,commit=5,defaults");
        assert_eq!(flags, MountFlags::NOATIME);
        assert_eq!(own, "journal_lazy,commit=5");
        assert_eq!(split_options("").1, "");
    }

    #[test]
    fn parameters_are_found_by_their_whole_name() {
        let line = "mem=1G shingle.outer=/x shingle.out=/tmp/run-1 ro\n";
        assert_eq!(
            find_parameter(line, "shingle.out").as_deref(),
            Some("/tmp/run-1")
        );
        assert_eq!(find_parameter(line, "shingle.save"), None);
    }
}
