// SPDX-License-Identifier: MIT OR Apache-2.0
//! The prototype of the NILFS2 report against the same drive with regular firmware: what the report saw from a file system
//! (its section 4.2), seen at the drive.

mod common;

use common::{at, profile, Random, MIB_BLOCKS};
use drive_tool::host::Host;
use smr_drive::profile::Translation;
use smr_drive::request::Op;

const ZONE_BLOCKS: u64 = 128 * MIB_BLOCKS;
const S: f64 = 1e9;

/// The prototype, and the drive that it was before.
fn both() -> [Host; 2] {
    let prototype = profile("wd30ezr-smr");
    let mut regular = prototype.clone();
    regular.translation = Translation::Conventional;
    regular.buffer.write_cache = true;
    [Host::new(prototype, 7), Host::new(regular, 7)]
}

#[test]
fn reads_are_the_same_and_a_queue_hides_the_firmware() {
    let rates = both().map(|mut host| {
        let mut random = Random(3);
        for _ in 0..200 {
            let block = random.below(5 << 18);
            host.request(Op::Read, at(block, 1), 0).unwrap();
        }
        let read_ns = host.now_ns;
        let mut running = 0;
        for block in (ZONE_BLOCKS..3 * ZONE_BLOCKS).step_by(256) {
            host.submit(Op::Write, at(block, 256), 0).unwrap();
            running += 1;
            while running >= 8 {
                host.step();
                running -= host.completions();
            }
        }
        while running > 0 {
            host.step();
            running -= host.completions();
        }
        host.request(Op::Flush, at(0, 0), 0).unwrap();
        assert_eq!(host.drive.snapshot().violations, 0);
        (read_ns, 256.0 / ((host.now_ns - read_ns) as f64 / S))
    });
    let [(reads_ns, written), (regular_reads_ns, regular)] = rates;
    println!("sequential write {written:.1} MiB/s, regular {regular:.1} MiB/s");
    assert_eq!(reads_ns, regular_reads_ns, "T43: about 0 %");
    // T46 has -2 %. Ours loses nothing: eight requests hide the firmware, and none waits in a buffer for neighbours.
    assert!((0.95..1.02).contains(&(written / regular)));
}

#[test]
fn a_small_write_at_a_time_misses_a_revolution() {
    let [mut host, _] = both();
    host.request(Op::Write, at(ZONE_BLOCKS, 1), 0).unwrap();
    let start_ns = host.now_ns;
    for i in 1..200 {
        host.request(Op::Write, at(ZONE_BLOCKS + i, 1), 0).unwrap();
    }
    let ms = (host.now_ns - start_ns) as f64 / 199.0 / 1e6;
    println!("4 KiB at the write pointer, one at a time: {ms:.2} ms each");
    // 5,400 rpm, the next block a little later on the track, and 4 % of it all for the firmware.
    assert!((11.1..12.0).contains(&ms), "{ms}");
    host.request(Op::Write, at(ZONE_BLOCKS + 7, 1), 0).unwrap();
    assert_eq!(host.drive.snapshot().violations, 1);
}
