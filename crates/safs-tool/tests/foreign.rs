// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mounting an image that somebody else made, with everything in it that could harm the host: the rows of the table in
//! docs/guide/safs.md, each through the kernel. The fuzz test forges structures; here the structures are sound, and say bad things.

mod mounted;

use mounted::{safs, Place};
use rustix::fs::{getxattr, listxattr};
use safs::format::{FileType, Ino, ROOT_INO};
use safs::{FileSystem, Options, Owner, XattrMode, RETAIN_ATTRIBUTE};
use safs_tool::image::ImageDevice;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::Duration;

type Fs = FileSystem<ImageDevice>;

/// An image with what is put into it past the kernel, which would not let anybody.
fn foreign(fill: impl FnOnce(&mut Fs)) -> Place {
    let place = Place::new("64M");
    let device = ImageDevice::open(&place.image(), true).unwrap();
    let mut fs = FileSystem::mount(device, Options::default(), 1).unwrap();
    fill(&mut fs);
    fs.unmount().unwrap();
    place
}

fn owner(permissions: u32) -> Owner {
    Owner {
        permissions,
        uid: 0,
        gid: 0,
    }
}

fn file(fs: &mut Fs, parent: Ino, name: &[u8], permissions: u32, content: &[u8]) -> Ino {
    let file = fs
        .create(parent, name, FileType::Regular, owner(permissions), 0)
        .unwrap();
    fs.write(file, 0, content).unwrap();
    file
}

/// Names that lead out of a directory, or end before their end.
#[test]
fn names_that_lead_elsewhere_are_refused_and_repaired() {
    let names: [&[u8]; 5] = [b"../../etc/evil", b"a/b", b"nul\0nul", b".", b".."];
    for name in names {
        let mut place = foreign(|fs| {
            file(fs, ROOT_INO, b"good", 0o644, b"good");
            file(fs, ROOT_INO, name, 0o644, b"evil");
        });
        place.mount("rw");
        let listed: Vec<_> = fs::read_dir(place.at("")).unwrap().collect();
        let is_error = |entry: &std::io::Result<fs::DirEntry>| entry.is_err();
        assert!(
            listed.iter().any(is_error),
            "{name:?} is listed: {listed:?}"
        );
        // They hold the directory.
        drop(listed);
        assert_eq!(fs::read(place.at("good")).unwrap(), b"good");
        place.unmount();
        assert_eq!(safs(&["fsck", &place.image_name()]).status.code(), Some(1));
        place.mount("rw");
        let found = fs::read_dir(place.at("lost+found")).unwrap();
        let found: Vec<_> = found.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(found.len(), 1, "one file had lost its name");
        assert_eq!(fs::read(&found[0]).unwrap(), b"evil");
        place.unmount();
    }
}

/// Links are followed by who reads them, with his own rights; a target that is no path is none.
#[test]
fn symbolic_links_are_not_followed_by_the_server() {
    let mut place = foreign(|fs| {
        fs.symlink(ROOT_INO, b"shadow", b"/etc/shadow", owner(0o777))
            .unwrap();
        fs.symlink(ROOT_INO, b"nul", b"/etc/passwd\0x", owner(0o777))
            .unwrap();
        fs.symlink(ROOT_INO, b"lost+found", b"/tmp", owner(0o777))
            .unwrap();
    });
    place.mount("allow_other");
    assert_eq!(
        fs::read_link(place.at("shadow")).unwrap().to_str(),
        Some("/etc/shadow")
    );
    let refused = place.as_nobody("cat shadow").unwrap_err();
    assert!(refused.contains("Permission denied"), "{refused}");
    assert!(fs::read_link(place.at("nul")).is_err());
    place.unmount();
    // Repairs are not led away either.
    let device = ImageDevice::open(&place.image(), true).unwrap();
    let mut fs = FileSystem::mount(device, Options::default(), 1).unwrap();
    file(&mut fs, ROOT_INO, b"x/y", 0o600, b"nameless");
    fs.unmount().unwrap();
    assert_eq!(safs(&["fsck", &place.image_name()]).status.code(), Some(1));
    place.mount("ro");
    let found = fs::read_dir(place.at("lost+found.1")).unwrap().count();
    assert_eq!(found, 1);
    place.unmount();
}

/// Nodes of devices are shown, and nobody can open them.
#[test]
fn device_nodes_are_dead() {
    let mut place = foreign(|fs| {
        // /dev/zero, and the first disk.
        fs.create(
            ROOT_INO,
            b"zero",
            FileType::Character,
            owner(0o666),
            1 << 8 | 5,
        )
        .unwrap();
        fs.create(
            ROOT_INO,
            b"disk",
            FileType::BlockDevice,
            owner(0o666),
            8 << 8,
        )
        .unwrap();
    });
    place.mount("allow_other");
    let node = fs::metadata(place.at("zero")).unwrap();
    assert!(node.file_type().is_char_device() && node.rdev() == rustix::fs::makedev(1, 5));
    for name in ["zero", "disk"] {
        let opened = File::open(place.at(name)).map(drop);
        assert_eq!(
            opened.unwrap_err().kind(),
            std::io::ErrorKind::PermissionDenied,
            "{name}"
        );
    }
    place.unmount();
    // Who mounts can allow it, and then the same node works.
    place.mount("dev");
    File::open(place.at("zero"))
        .unwrap()
        .read_exact(&mut [0; 8])
        .unwrap();
    place.unmount();
}

/// A root's program with the set-user-ID bit, or with capabilities, lends nobody anything.
#[test]
fn programs_lend_nobody_their_owner_s_rights() {
    let id = fs::read("/usr/bin/id").unwrap();
    let mut place = foreign(|fs| {
        file(fs, ROOT_INO, b"id", 0o4755, &id);
        let able = file(fs, ROOT_INO, b"able", 0o755, &id);
        // All capabilities, effective.
        let mut all = vec![1, 0, 0, 2];
        all.extend([
            0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 1, 0, 0, 0, 0, 0, 0,
        ]);
        fs.set_xattr(able, b"security.capability", &all, XattrMode::Any)
            .unwrap();
    });
    let is_nobody = "test $(./id -u) = 65534 && cp able /dev/null && ./able";
    place.mount("allow_other");
    place.as_nobody(is_nobody).unwrap();
    place.unmount();
    // Who mounts can allow it, and then it does.
    place.mount("allow_other,suid");
    place.as_nobody("test $(./id -u) = 0").unwrap();
    place.unmount();
    place.mount("noexec");
    let refused = std::process::Command::new(place.at("id")).status();
    assert!(refused.is_err());
    place.unmount();
}

/// Sizes as large as can be said take neither memory nor time.
#[test]
fn huge_sizes_take_nothing() {
    let most = safs::format::FILE_BYTES_MAX;
    let mut place = foreign(|fs| {
        let huge = file(fs, ROOT_INO, b"huge", 0o644, b"start");
        fs.truncate(huge, most).unwrap();
    });
    let server = place.mount("rw");
    assert_eq!(fs::metadata(place.at("huge")).unwrap().len(), most);
    let mut bytes = [1; 8192];
    File::open(place.at("huge"))
        .unwrap()
        .read_exact(&mut bytes)
        .unwrap();
    assert!(bytes.starts_with(b"start\0\0") && bytes.ends_with(&[0]));
    let status = fs::read_to_string(format!("/proc/{server}/status")).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kib < 512 << 10, "{peak_kib} KiB");
    place.unmount();
}

/// What an attribute says of retention concerns what is in the image, and nothing else.
#[test]
fn attributes_of_an_image_name_no_place_of_the_host() {
    let target = tempfile::tempdir().unwrap();
    let mut place = foreign(|fs| {
        let value = format!("bytes=1 to={}", target.path().display());
        for (name, value) in [
            ("old", value.as_str()),
            ("new", "bytes=1 copy"),
            ("huge", "seconds=18446744073709551615"),
        ] {
            let ring = fs
                .create(
                    ROOT_INO,
                    name.as_bytes(),
                    FileType::Directory,
                    owner(0o755),
                    0,
                )
                .unwrap();
            file(fs, ring, b"first", 0o644, &[1; 5000]);
            file(fs, ring, b"second", 0o644, &[2; 5000]);
            // The core takes what can be read; what an older program took is put past it, as any attribute.
            match safs::Retention::parse(value.as_bytes()) {
                Ok(_) => fs
                    .set_xattr(ring, RETAIN_ATTRIBUTE, value.as_bytes(), XattrMode::Any)
                    .unwrap(),
                Err(_) => assert_eq!(name, "old"),
            }
        }
    });
    place.mount("rw");
    std::thread::sleep(Duration::from_millis(2500));
    for ring in ["old", "new", "huge"] {
        assert_eq!(fs::read_dir(place.at(ring)).unwrap().count(), 2, "{ring}");
    }
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
    place.unmount();
}

/// Access lists, and names of attributes that would be read as several.
#[test]
fn attributes_that_are_not_kept_are_not_shown() {
    let mut place = foreign(|fs| {
        let file = file(fs, ROOT_INO, b"file", 0o600, b"private");
        let list = b"system.posix_acl_access";
        fs.set_xattr(file, list, &[2, 0, 0, 0], XattrMode::Any)
            .unwrap();
        fs.set_xattr(file, b"user.a\0security.b", b"x", XattrMode::Any)
            .unwrap();
        fs.set_xattr(file, b"user.good", b"good", XattrMode::Any)
            .unwrap();
    });
    place.mount("allow_other");
    let list = getxattr(place.at("file"), "system.posix_acl_access", &mut [0; 64]);
    assert_eq!(list, Err(rustix::io::Errno::OPNOTSUPP));
    assert!(place.as_nobody("cat file").is_err());
    let mut names = vec![0; 256];
    let length = listxattr(place.at("file"), &mut names).unwrap();
    assert_eq!(&names[..length], b"user.good\0");
    place.unmount();
}

/// Owners whose numbers are none.
#[test]
fn owners_that_are_nobody_are_shown() {
    let mut place = foreign(|fs| {
        let nobody = Owner {
            permissions: 0o7777,
            uid: u32::MAX,
            gid: u32::MAX,
        };
        let a = fs
            .create(ROOT_INO, b"a", FileType::Directory, nobody, 0)
            .unwrap();
        file(fs, a, b"file", 0o644, b"x");
    });
    place.mount("rw");
    assert_eq!(fs::metadata(place.at("a")).unwrap().mode() & 0o7777, 0o7777);
    assert_eq!(fs::read(place.at("a/file")).unwrap(), b"x");
    place.unmount();
}

/// What is said of an image on a terminal does not steer the terminal.
#[test]
fn names_and_labels_do_not_steer_a_terminal() {
    let evil = "\u{1b}]0;evil\u{7}\u{1b}[2J";
    let place = foreign(|fs| {
        let lost = file(fs, ROOT_INO, format!("a/{evil}").as_bytes(), 0o644, b"x");
        fs.set_xattr(
            lost,
            format!("user.{evil}").as_bytes(),
            b"x",
            XattrMode::Any,
        )
        .unwrap();
    });
    let image = place.image_name();
    let label = mounted::safs(&[
        "mkfs",
        "--zone-size",
        "1M",
        "--size",
        "32M",
        "-L",
        evil,
        &format!("{image}2"),
    ]);
    assert!(label.status.success());
    let commands: [&[&str]; 4] = [
        &["fsck", "-n", &image],
        &["dump", &image, "catalog"],
        &["dump", &format!("{image}2"), "superblock"],
        &["stat", &image],
    ];
    for command in commands {
        let output = safs(command);
        let said = [output.stdout, output.stderr].concat();
        assert!(
            !said.is_empty() && !said.contains(&0x1b),
            "{command:?}: {}",
            String::from_utf8_lossy(&said)
        );
    }
}
