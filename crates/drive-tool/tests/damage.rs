// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever is in a file, the readers of traces and profiles answer: with what is in it, or with a sentence. The fuzz
//! targets in crates/drive-tool/fuzz look for longer.

use drive_tool::{any_trace, profile, trace_file};
use proptest::prelude::*;
use smr_drive::request::Op;

const PROFILE: &str = include_str!("../../../drives/st8000as0002.toml");
const BLKPARSE: &str = "\
  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        3     0.000104567   697  D  WS 223490 + 8 [kjournald]
  8,0    1        4     0.000204567   697  D  FN [kworker]
  8,0    1        5     0.000304567   697  D FWFSM 800 + 16 [jbd2]
CPU0 (8,0):
";

fn trace() -> Vec<u8> {
    let profile = smr_drive::profile::sample::conventional(1 << 30);
    let mut host = drive_tool::host::Host::new(profile, 1);
    host.drive.trace_take(&mut []);
    for i in 0..20 {
        let range = drive_tool::host::at(i * 7, 1 + i % 3);
        host.request(Op::Write, range, 0).unwrap();
    }
    host.drive.mark(host.now_ns, b"a phase");
    let mut bytes = vec![0; 1 << 16];
    let n = host.drive.trace_take(&mut bytes);
    bytes.truncate(n);
    bytes
}

/// Changes at places: each overwrites, removes or adds a byte.
fn mutated(original: &[u8], changes: &[(usize, u8, u8)]) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for (at, value, how) in changes {
        let at = at % (bytes.len() + 1);
        match how % 3 {
            0 if at < bytes.len() => bytes[at] = *value,
            1 if at < bytes.len() => drop(bytes.remove(at)),
            _ => bytes.insert(at, *value),
        }
    }
    bytes
}

fn changes() -> impl Strategy<Value = Vec<(usize, u8, u8)>> {
    prop::collection::vec((any::<usize>(), any::<u8>(), any::<u8>()), 0..8)
}

/// Everything that is done with a trace must bear what the reader let through.
fn read_and_use(bytes: &[u8]) {
    match any_trace::read_any("x", bytes) {
        Ok(events) => {
            trace_file::summary(&events).unwrap();
            trace_file::write_csv(&events, &mut Vec::new()).unwrap();
        }
        Err(why) => assert!(why.starts_with("x: ") && !why.contains('\n'), "{why}"),
    }
}

proptest! {
    #[test]
    fn no_trace_makes_the_reader_panic(changes in changes()) {
        read_and_use(&mutated(&trace(), &changes));
    }

    #[test]
    fn no_text_of_blkparse_makes_the_reader_panic(changes in changes()) {
        read_and_use(&mutated(BLKPARSE.as_bytes(), &changes));
    }

    #[test]
    fn no_profile_makes_the_reader_panic(changes in changes()) {
        let text = String::from_utf8_lossy(&mutated(PROFILE.as_bytes(), &changes)).into_owned();
        if let Err(why) = profile::parse("x.toml", &text) {
            prop_assert!(why.to_string().starts_with("x.toml:"), "{}", why);
        }
    }
}

#[test]
fn any_value_within_its_range_converts() {
    // The least and the most of every key by itself: what the reader accepts, the model must be able to hold.
    let read = profile::read("x.toml", PROFILE).unwrap();
    for key in read.parameters.keys() {
        let (least, most) = profile::range_of(key).unwrap();
        for value in [least, most] {
            let mut changed = read.clone();
            changed.parameters.get_mut(key).unwrap().value = value;
            if let Ok(converted) = profile::convert(&changed) {
                drop(drive_tool::host::Host::new(converted, 1));
            }
        }
    }
}
