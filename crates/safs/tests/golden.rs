// SPDX-License-Identifier: MIT OR Apache-2.0
//! The worked example of docs/reference/safs-format.md is what the code writes, to the byte.

mod common;

use safs::format::{FileType, Ino};
use safs::{make, FileSystem, MakeOptions, Options, Owner};
use std::fmt::Write;
use std::path::Path;
use zoned::{Lba, RamDevice, ZonedDevice};

const BEGIN: &str = "<!-- hexdump -->\n";
const END: &str = "<!-- end of hexdump -->";

fn written() -> Vec<u8> {
    let make_options = MakeOptions {
        uuid: *b"an example's one",
        label: [0; 64],
        now_ns: 0,
    };
    let device = make(RamDevice::new(4, 36, 2048), make_options, |_| ()).unwrap();
    let mut fs = FileSystem::mount(device, Options::default(), 1_000_000_000).unwrap();
    let owner = Owner {
        permissions: 0o644,
        uid: 1000,
        gid: 1000,
    };
    let ino = fs
        .create(Ino(1), b"a", FileType::Regular, owner, 0)
        .unwrap();
    fs.write(ino, 0, b"hello\n").unwrap();
    fs.fsync(ino).unwrap();
    let mut header = vec![0; 4096];
    let mut device = fs.unmount().unwrap();
    device.read(Lba(4 * 2048), &mut header).unwrap();
    header
}

fn dump(bytes: &[u8]) -> String {
    let mut text = String::from("```\n");
    for (i, line) in bytes.chunks(16).enumerate() {
        if line.iter().all(|byte| *byte == 0) {
            continue;
        }
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let letter = |byte: &u8| {
            if byte.is_ascii_graphic() {
                char::from(*byte)
            } else {
                '.'
            }
        };
        let letters: String = line.iter().map(letter).collect();
        writeln!(text, "{:04x}  {}  {letters}", i * 16, hex.join(" ")).unwrap();
    }
    text + "```\n"
}

#[test]
fn the_worked_example_is_what_is_written() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/safs-format.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (shown, after) = rest.split_once(END).unwrap();
    let found = dump(&written());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&page, format!("{before}{BEGIN}{found}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(shown, found, "UPDATE=1 writes it anew");
}
