// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program's commands that work on image files: what they refuse, what they leave alone, and their exit statuses.
//! `SAFS_PROGRAM` names another build to be tried.

mod mounted;

use mounted::{program, safs, succeed, until, Ended};
use rustix::fs::{flock, FlockOperation};
use safs::format::{FileType, BLOCK, ROOT_INO};
use safs::{FileSystem, Options, Owner};
use safs_tool::image::ImageDevice;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A folder, and the name of an image in it.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    (folder, image)
}

fn mkfs(image: &Path, more: &[&str]) -> Output {
    let image = image.to_str().unwrap();
    safs(&[&["mkfs"], more, &[image]].concat())
}

fn made(image: &Path, more: &[&str]) {
    let output = mkfs(image, more);
    assert!(output.status.success(), "{}", said(&output));
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into()
}

fn opened(image: &Path) -> FileSystem<ImageDevice> {
    let device = ImageDevice::open(image, true).unwrap();
    FileSystem::mount(device, Options::default(), 1).unwrap()
}

fn with_file(image: &Path) {
    let mut fs = opened(image);
    let file = fs.create(ROOT_INO, b"file", FileType::Regular, Owner::default(), 0);
    let file = file.unwrap();
    fs.write(file, 0, &[7; 100_000]).unwrap();
    fs.fsync(file).unwrap();
}

fn fsck(image: &Path, more: &[&str]) -> Output {
    safs(&[&["fsck"], more, &[image.to_str().unwrap()]].concat())
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// H1: what mkfs refuses, it leaves as it was.
#[test]
fn a_refused_mkfs_changes_nothing() {
    let (folder, image) = place();
    made(&image, &["--zone-size", "1M", "--size", "32M"]);
    with_file(&image);
    let before = fs::read(&image).unwrap();
    let unchanged = |more: &[&str], why: &str| {
        let output = mkfs(&image, more);
        assert!(
            !output.status.success() && said(&output).contains(why),
            "{more:?}: {}",
            said(&output)
        );
        assert!(
            fs::read(&image).unwrap() == before,
            "{more:?} changed the image"
        );
    };
    unchanged(
        &["--zone-size", "3K", "--size", "16M"],
        "zones are multiples of 1 MiB",
    );
    unchanged(
        &["--zone-size", "1M", "--size", "8M"],
        "fewer than 12 sequential zones",
    );
    unchanged(
        &["--label", &"x".repeat(65), "--size", "16M"],
        "longer than 64 bytes",
    );
    unchanged(
        &["--zone-size", "1M", "--random-zones", "30", "--size", "32M"],
        "fewer than 12",
    );
    let mounted = File::open(&image).unwrap();
    flock(&mounted, FlockOperation::LockExclusive).unwrap();
    unchanged(
        &["--zone-size", "1M", "--size", "16M"],
        "in use by another program",
    );
    drop(mounted);
    // A file that was made for it goes with the refusal.
    let new = folder.path().join("new");
    assert!(!mkfs(&new, &["--zone-size", "1M", "--size", "8M"])
        .status
        .success());
    assert!(!new.exists());
}

/// Low: nobody but its owner reads an image.
#[test]
fn an_image_is_its_owner_s() {
    let (_folder, image) = place();
    made(&image, &["--zone-size", "1M", "--size", "32M"]);
    let mode = fs::metadata(&image).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    // One that was there keeps the mode that somebody gave it.
    fs::set_permissions(&image, fs::Permissions::from_mode(0o640)).unwrap();
    made(&image, &["--zone-size", "1M", "--size", "32M"]);
    assert_eq!(fs::metadata(&image).unwrap().mode() & 0o777, 0o640);
}

fn label(image: &Path) -> String {
    let text = succeed(&["dump", image.to_str().unwrap(), "superblock"]);
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    found["label"].as_str().unwrap().into()
}

/// M1: the mirror of an earlier file system is not taken for that of the one that is there.
#[test]
fn a_damaged_superblock_leads_to_its_own_mirror() {
    let (_folder, image) = place();
    made(
        &image,
        &["--zone-size", "1M", "--size", "256M", "-L", "old"],
    );
    made(
        &image,
        &["--zone-size", "8M", "--size", "256M", "-L", "new"],
    );
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0; BLOCK], 0).unwrap();
    assert_eq!(label(&image), "new");
    // The same where an earlier program left the old mirror: it is the one of the older file system.
    made(
        &image,
        &["--zone-size", "8M", "--size", "256M", "-L", "new"],
    );
    let (_other, old) = place();
    made(&old, &["--zone-size", "1M", "--size", "256M", "-L", "old"]);
    made(
        &image,
        &["--zone-size", "8M", "--size", "256M", "-L", "new"],
    );
    let mut block = vec![0; BLOCK];
    File::open(&old)
        .unwrap()
        .read_exact_at(&mut block, MIB)
        .unwrap();
    file.write_all_at(&block, MIB).unwrap();
    file.write_all_at(&[0; BLOCK], 0).unwrap();
    assert_eq!(label(&image), "new");
}

/// M2: what an earlier file system with the same UUID logged is none of this one's.
#[test]
fn the_log_of_an_earlier_life_is_not_read() {
    let (_folder, image) = place();
    let uuid = [
        "--zone-size",
        "1M",
        "--size",
        "32M",
        "--uuid",
        "00112233445566778899aabbccddeeff",
    ];
    made(&image, &uuid);
    with_file(&image);
    made(&image, &uuid);
    // Mounted and killed: the log goes on where that of the earlier life began.
    drop(opened(&image));
    let mut fs = opened(&image);
    assert_eq!(fs.lookup(ROOT_INO, b"file"), Err(safs::Error::NotFound));
    assert_eq!(
        fs.check(true, |_| ()).unwrap().problems,
        Vec::<String>::new()
    );
}

/// H5: the statuses are those of fsck(8).
#[test]
fn fsck_says_what_it_did_by_its_status() {
    let (folder, image) = place();
    made(&image, &["--zone-size", "1M", "--size", "32M"]);
    with_file(&image);
    assert_eq!(code(&fsck(&image, &[])), 0, "sound");
    // One copy of each node of the catalog is bad.
    let text = succeed(&["dump", image.to_str().unwrap(), "roots"]);
    let roots: serde_json::Value = serde_json::from_str(&text).unwrap();
    let at = roots[0]["catalog"]["block"].as_u64().unwrap();
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[9; BLOCK], at * BLOCK as u64).unwrap();
    assert_eq!(code(&fsck(&image, &["-n"])), 4, "looked at only");
    assert_eq!(code(&fsck(&image, &["-a"])), 1, "repaired");
    assert_eq!(code(&fsck(&image, &[])), 0, "sound again");
    let junk = folder.path().join("junk");
    fs::write(&junk, vec![0x5a; 4 << 20]).unwrap();
    assert_eq!(code(&fsck(&junk, &["-a"])), 8, "no file system");
    assert_eq!(
        code(&fsck(&folder.path().join("missing"), &["-a"])),
        8,
        "no file"
    );
    let mounted = File::open(&image).unwrap();
    flock(&mounted, FlockOperation::LockExclusive).unwrap();
    assert_eq!(code(&fsck(&image, &["-a"])), 8, "in use");
    assert_eq!(code(&fsck(&image, &["--no-such-option"])), 16, "usage");
    // As mount(8) and fsck(8) call it.
    let link = folder.path().join("fsck.safs");
    std::os::unix::fs::symlink(program(), &link).unwrap();
    let called = |arguments: &[&str]| Command::new(&link).args(arguments).output().unwrap();
    assert_eq!(code(&called(&["-a"])), 16);
    assert_eq!(code(&called(&["-a", junk.to_str().unwrap()])), 8);
    assert_eq!(code(&called(&["--help"])), 0);
}

/// H5: the documented unit of systemd mounts what is sound or was repaired, and nothing else.
#[test]
fn the_documented_unit_does_not_mount_what_fsck_could_not_repair() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/safs.md");
    let guide = fs::read_to_string(guide).unwrap();
    assert!(
        !guide.contains("SuccessExitStatus"),
        "it would hide a mount that failed"
    );
    let line = guide
        .lines()
        .find_map(|line| line.trim().strip_prefix("ExecStartPre="));
    let line = line.expect("the unit checks before it mounts");
    let (folder, image) = place();
    made(&image, &["--zone-size", "1M", "--size", "32M"]);
    let program = program();
    let unit = |image: &Path| {
        let line = line.replace("/usr/local/sbin/safs", program.to_str().unwrap());
        let line = line.replace("/dev/disk/by-id/ata-DISK", image.to_str().unwrap());
        // In a unit `$$` is `$`.
        let line = line.replace("$$", "$");
        Command::new("sh")
            .args(["-c", &line])
            .status()
            .unwrap()
            .success()
    };
    assert!(unit(&image), "sound");
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[9; 16 * BLOCK], BLOCK as u64).unwrap();
    assert!(unit(&image), "repaired, or nothing to do");
    let junk = folder.path().join("junk");
    fs::write(&junk, vec![0x5a; 4 << 20]).unwrap();
    assert!(!unit(&junk), "no file system");
    assert!(!unit(&folder.path().join("missing")), "no file");
}

/// Ctrl-C ends a check with the status that fsck(8) has for it.
#[test]
fn a_cancelled_fsck_says_so() {
    let (_folder, pipe) = place();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // Opening it waits for somebody who writes.
    let mut check = Command::new(program());
    let mut check = Ended(check.args(["fsck", "-n"]).arg(&pipe).spawn().unwrap());
    until("the handler of signals", || {
        let status = fs::read_to_string(format!("/proc/{}/status", check.0.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        caught & 1 << (rustix::process::Signal::INT.as_raw() - 1) != 0
    });
    let pid = rustix::process::Pid::from_child(&check.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(check.0.wait().unwrap().code(), Some(32));
}
