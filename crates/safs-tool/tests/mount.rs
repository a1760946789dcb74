// SPDX-License-Identifier: MIT OR Apache-2.0
//! What users of a mount get, through the kernel.

mod mounted;

use mounted::{succeed, until, Place, NOBODY};
use rustix::fs::{chmod, chown, getxattr, setxattr, statx};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, XattrFlags, CWD};
use rustix::io::{pwritev2, ReadWriteFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// C1: what `O_SYNC`, `O_DSYNC` and `RWF_DSYNC` promised is there after the server was killed.
#[test]
fn synchronous_writes_are_durable_when_they_return() {
    let mut place = Place::new("64M");
    place.mount("rw");
    let flagged = |name: &str, flags: OFlags| {
        let flags = i32::try_from(flags.bits()).unwrap();
        let mut file = OpenOptions::new();
        file.write(true).create(true).custom_flags(flags);
        file.open(place.at(name)).unwrap()
    };
    let content = |number: u8| vec![number; 5000];
    flagged("dsync", OFlags::DSYNC)
        .write_all(&content(1))
        .unwrap();
    flagged("sync", OFlags::SYNC)
        .write_all(&content(2))
        .unwrap();
    let plain = File::create(place.at("call")).unwrap();
    let bytes = content(3);
    let pieces = [IoSlice::new(&bytes)];
    let written = pwritev2(&plain, &pieces, 0, ReadWriteFlags::DSYNC).unwrap();
    assert_eq!(written, bytes.len());
    place.kill();
    place.mount("rw");
    for (name, number) in [("dsync", 1), ("sync", 2), ("call", 3)] {
        let found = fs::read(place.at(name)).ok();
        assert!(
            found == Some(content(number)),
            "{name} is not what was written"
        );
    }
    place.unmount();
}

/// M7: a listing ends although everything that it shows gets a new name at once.
#[test]
fn a_listing_beside_renames_ends_and_shows_what_stays() {
    const FILES: usize = 1000;
    let mut place = Place::new("64M");
    place.mount("rw");
    let name = |number: usize| place.at(&format!("file{number}"));
    (0..FILES).for_each(|number| drop(File::create(name(number)).unwrap()));
    File::create(place.at("stays")).unwrap();
    let mut shown = Vec::new();
    for entry in fs::read_dir(place.at("")).unwrap() {
        let entry = entry.unwrap().file_name();
        assert!(shown.len() <= FILES, "the listing has no end");
        if entry != "stays" {
            let number = FILES + shown.len();
            fs::rename(place.at(entry.to_str().unwrap()), name(number)).unwrap();
        }
        shown.push(entry);
    }
    assert!(shown.iter().any(|entry| entry == "stays"));
    // Who begins again sees what there is now.
    let again = fs::read_dir(place.at("")).unwrap().count();
    assert_eq!(again, FILES + 1);
    place.unmount();
}

/// A listing that is rewound shows what has come since.
#[test]
fn a_listing_that_is_rewound_is_that_of_now() {
    let mut place = Place::new("64M");
    place.mount("rw");
    File::create(place.at("first")).unwrap();
    let directory = File::open(place.at("")).unwrap();
    let mut listing = rustix::fs::Dir::read_from(&directory).unwrap();
    let names = |listing: &mut rustix::fs::Dir| listing.by_ref().count();
    assert_eq!(names(&mut listing), 3);
    File::create(place.at("second")).unwrap();
    listing.rewind();
    assert_eq!(names(&mut listing), 4);
    drop((listing, directory));
    place.unmount();
}

/// M9: who is not root and appends takes the bits away that lend the owner's rights; capabilities go in any case.
#[test]
fn privileges_of_a_file_do_not_survive_another_s_append() {
    let mut place = Place::new("64M");
    place.mount("allow_other,suid");
    // The mode alone, as who runs a file looks at it: the rest of what the kernel remembers is stale after a write anyway.
    let mode = |name: &str| {
        let (none, mode) = (AtFlags::empty(), StatxFlags::MODE);
        let found = statx(CWD, place.at(name), none, mode).unwrap();
        u32::from(found.stx_mode) & 0o7777
    };
    // The second is a mandatory lock's mark, no privilege.
    for (name, bits, kept) in [("bits", 0o6777, 0o777), ("mark", 0o2766, 0o2766)] {
        fs::write(place.at(name), "old").unwrap();
        chmod(place.at(name), Mode::from_raw_mode(bits)).unwrap();
        OpenOptions::new()
            .append(true)
            .open(place.at(name))
            .unwrap()
            .write_all(b"root")
            .unwrap();
        assert_eq!(mode(name), bits, "root may");
        place.as_nobody(&format!("echo new >>{name}")).unwrap();
        assert_eq!(mode(name), kept, "{name}");
    }
    fs::write(place.at("able"), "old").unwrap();
    chmod(place.at("able"), Mode::from_raw_mode(0o777)).unwrap();
    // cap_setuid+ep, version 2.
    let capability = [
        1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let name = "security.capability";
    setxattr(place.at("able"), name, &capability, XattrFlags::empty()).unwrap();
    place.as_nobody("echo new >>able").unwrap();
    let left = getxattr(place.at("able"), name, &mut [0; 64]);
    assert_eq!(left, Err(rustix::io::Errno::NODATA));
    place.unmount();
}

fn retain(place: &Place, name: &str, value: &[u8]) -> Result<(), rustix::io::Errno> {
    setxattr(
        place.at(name),
        "user.safs.retain",
        value,
        XattrFlags::empty(),
    )
}

/// A directory in the mount with files of 50 kB, the first of which are spent.
fn ring(place: &Place, name: &str, value: &[u8]) {
    fs::create_dir(place.at(name)).unwrap();
    for number in 0..4 {
        fs::write(place.at(&format!("{name}/file{number}")), [number; 50_000]).unwrap();
    }
    retain(place, name, value).unwrap();
}

fn files_below(folder: &std::path::Path) -> Vec<String> {
    let mut find = Command::new("find");
    find.arg(folder).args(["-type", "f", "-printf", "%P\n"]);
    let listed = find.output().unwrap().stdout;
    let mut names: Vec<String> = String::from_utf8(listed)
        .unwrap()
        .lines()
        .map(str::to_string)
        .collect();
    names.sort();
    names
}

/// C3: where copies go, nobody can say but who mounts; that there are copies, nobody but root.
#[test]
fn a_user_cannot_make_root_s_server_write_anywhere() {
    let mut place = Place::new("64M");
    let (target, cold) = (place.beside("target"), place.beside("cold"));
    fs::create_dir(&target).unwrap();
    fs::create_dir(&cold).unwrap();
    place.mount(&format!("allow_other,cold={}", cold.display()));
    ring(&place, "own", b"bytes=1000000");
    chown(
        place.at("own"),
        Some(rustix::fs::Uid::from_raw(NOBODY)),
        None,
    )
    .unwrap();
    let set = |value: &str| {
        let set = "import os,sys; os.setxattr('own', 'user.safs.retain', sys.argv[1].encode())";
        place.as_nobody(&format!("python3 -c \"{set}\" '{value}'"))
    };
    set("bytes=900000").unwrap();
    for value in [
        format!("bytes=1 to={}", target.display()),
        "bytes=1 copy".into(),
    ] {
        assert!(set(&value).is_err(), "{value}");
    }
    // Longer than the server waits between two looks.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!((files_below(&target), files_below(&cold)), (vec![], vec![]));
    retain(&place, "own", b"bytes=100000 copy").unwrap();
    until("the copies", || {
        files_below(&cold).len() == 2 && !place.at("own/file1").exists()
    });
    assert!(
        files_below(&cold)[1].ends_with("-file1"),
        "{:?}",
        files_below(&cold)
    );
    assert_eq!(files_below(&target), Vec::<String>::new());
    place.unmount();
}

/// C3: nothing leaves a file system that is mounted to be looked at.
#[test]
fn nothing_is_copied_from_a_read_only_mount() {
    let mut place = Place::new("64M");
    let cold = place.beside("cold");
    fs::create_dir(&cold).unwrap();
    place.mount("rw");
    ring(&place, "ring", b"bytes=1000000");
    retain(&place, "ring", b"bytes=100000 copy").unwrap();
    place.unmount();
    place.mount(&format!("ro,cold={}", cold.display()));
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(files_below(&cold), Vec::<String>::new());
    assert_eq!(fs::read_dir(place.at("ring")).unwrap().count(), 4);
    place.unmount();
}

/// No thread of a server can get rights back, which is what confinement begins with (`sandbox.rs` and `serve.rs` try the
/// rest), and where copies go is left to it.
#[test]
fn every_thread_of_a_server_is_confined() {
    let mut place = Place::new("64M");
    let server = place.mount("rw");
    let mut threads = 0;
    for thread in fs::read_dir(format!("/proc/{server}/task")).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let bit = status
            .lines()
            .find_map(|line| line.strip_prefix("NoNewPrivs:"));
        assert_eq!(bit.map(str::trim), Some("1"), "{status}");
        threads += 1;
    }
    // The one that waits, the kernel's, the clock's, the copies', that of signals.
    assert!(threads >= 5, "{threads} threads");
    place.unmount();
}

/// A confined server cannot unmount; the process beside it does.
#[test]
fn a_signal_unmounts_and_leaves_no_process() {
    let mut place = Place::new("64M");
    let server = place.mount("rw");
    fs::write(place.at("file"), "kept").unwrap();
    let held = File::open(place.at("file")).unwrap();
    let beside = Command::new("pgrep")
        .args(["-P", &server.to_string()])
        .output()
        .unwrap();
    let beside: u32 = String::from_utf8(beside.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let signal = |pid: u32| {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    };
    // The signals of a terminal reach both.
    signal(beside);
    signal(server);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(fs::read(place.at("file")).unwrap(), b"kept", "it is in use");
    drop(held);
    signal(server);
    place.wait();
    let is_gone = || !std::path::Path::new(&format!("/proc/{beside}/task")).exists();
    until("the end of the process that unmounts", is_gone);
    place.mount("ro");
    assert_eq!(fs::read(place.at("file")).unwrap(), b"kept");
    place.unmount();
}

/// Low: options of /etc/fstab, and the streams of whoever mounts.
#[test]
fn a_mount_in_the_background_takes_usual_options_and_lets_its_caller_s_streams_go() {
    let place = Place::new("64M");
    let mut mount = Command::new(mounted::program());
    let options = "noatime,nofail,nosuid,nodev,defaults,x-systemd.device-timeout=5";
    mount
        .args(["mount", "-o", options])
        .args([place.image(), place.at("")]);
    // `output` waits for the end of both streams, which the server would hold.
    let mount = mount.stdin(Stdio::null()).output().unwrap();
    assert!(
        mount.status.success(),
        "{}",
        String::from_utf8_lossy(&mount.stderr)
    );
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let at = place.at("").display().to_string();
    let line = mounts
        .lines()
        .find(|line| line.contains(at.trim_end_matches('/')))
        .unwrap();
    assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
    let wrong = mounted::safs(&["mount", "-o", "remount,ro", "image", "mnt"]);
    assert_eq!(wrong.status.code(), Some(1));
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(said, "safs: remount: no such option of a mount\n");
    succeed(&["fsck", "--help"]);
    let unmounted = Command::new("umount").arg(place.at("")).status().unwrap();
    assert!(unmounted.success());
    // The server ends after the unmount; then nobody holds the image.
    until("a clean end", || {
        mounted::safs(&["fsck", &place.image_name()])
            .status
            .success()
    });
}
