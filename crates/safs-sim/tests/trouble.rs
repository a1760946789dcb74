// SPDX-License-Identifier: MIT OR Apache-2.0
//! After a command of the device that failed nothing more is promised, so nothing more is written.

use safs::format::{FileType, ROOT_INO};
use safs::{Error, FileSystem, Options, Owner, Placement};
use safs_sim::suites::config::{made, small};
use safs_sim::suites::sim::{Command, Shape, Sim, Trouble};
use std::cell::RefCell;
use std::rc::Rc;

/// A device whose first command of a kind fails, once, and then works again.
fn troubled(command: Command) -> (FileSystem<Sim>, Rc<RefCell<Trouble>>) {
    let shape = Shape {
        conventional: 8,
        sequential: 24,
        zone_blocks: 64,
        capacity_blocks: 64,
        open_max: Some(10),
        keeps_pointers: true,
        discards: true,
    };
    let trouble = Rc::new(RefCell::new(Trouble::default()));
    let device = made(Sim::new(shape)).troubled(&trouble);
    let fs = FileSystem::mount(device, small(Placement::Log), 1).expect("it was made");
    trouble.borrow_mut().fails = Some((command, 0));
    trouble.borrow_mut().times = 1;
    (fs, trouble)
}

/// Writes, deletes and syncs until the device has failed.
fn work_until_it_fails(fs: &mut FileSystem<Sim>, trouble: &Rc<RefCell<Trouble>>) {
    for round in 0u8..200 {
        if trouble.borrow().has_failed {
            return;
        }
        let name = [b'f', b'a' + round % 8];
        let _ = fs.unlink(ROOT_INO, &name);
        let made = fs.create(ROOT_INO, &name, FileType::Regular, Owner::default(), 0);
        let Ok(ino) = made else {
            continue;
        };
        let _ = fs.write(ino, 0, &[round; 70_000]);
        let _ = fs.fsync(ino);
        if round % 16 == 15 {
            let _ = fs.root_commit(false);
        }
    }
    panic!("no such command in 200 rounds");
}

#[test]
fn a_command_that_failed_once_makes_it_read_only() {
    for command in [
        Command::Write,
        Command::Flush,
        Command::Reset,
        Command::Finish,
    ] {
        let (mut fs, trouble) = troubled(command);
        work_until_it_fails(&mut fs, &trouble);
        assert!(fs.refusal().is_some(), "{command:?} failed, and it goes on");
        let made = fs.create(ROOT_INO, b"after", FileType::Regular, Owner::default(), 0);
        assert_eq!(made, Err(Error::ReadOnly), "{command:?}");
        // The device is sound again: what was durable is there.
        let device = fs.unmount().expect("nothing is written").plain();
        let mut fs = FileSystem::mount(device, Options::default(), 2).expect("it mounts");
        let report = fs.check(true, |_| ()).expect("the catalog can be read");
        assert_eq!(report.problems, Vec::<String>::new(), "{command:?}");
    }
}
