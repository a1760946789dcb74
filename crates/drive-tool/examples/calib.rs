use drive_tool::host::Host;
use drive_tool::profile;
use smr_drive::request::Op;
use smr_drive::state::State;
use smr_drive::file::Opened;
use smr_drive::contents::Contents;
use smr_drive::Drive;
use std::path::Path;
use zoned::{Block, BlockRange};
fn at(b: u64, n: u64) -> BlockRange { BlockRange::new(Block(b), Block(b + n)) }
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let mut p = profile::load(Path::new(&format!("drives/{}.toml", a[1]))).unwrap();
    if let (Some(e), smr_drive::profile::Translation::SBlocks(s)) = (a.get(5), &mut p.translation) { s.section_entries_max = e.parse::<u64>().unwrap() / 40; }
    let range: u64 = a[2].parse::<u64>().unwrap() << 18;
    let minutes: u64 = a[3].parse().unwrap();
    let hot: u64 = a.get(4).and_then(|x| x.parse().ok()).unwrap_or(0);
    let cap = p.capacity_blocks();
    let range = if range == 0 { cap } else { range.min(cap) };
    let mut h = Host::with_drive(Drive::new(Opened { state: Box::new(State::used(p, 7)), contents: Contents::new() }, 7));
    let mut x = 88172645463325252u64;
    let mut rnd = || { x ^= x << 13; x ^= x >> 7; x ^= x << 17; x };
    let t0 = std::time::Instant::now();
    let mut total = 0u64;
    for m in 0..minutes {
        let start = h.now_ns;
        let end = (m + 1) * 60_000_000_000;
        let mut n = 0u64; let mut worst = 0;
        while h.now_ns < end {
            let b = if hot > 0 { (rnd() % (range / 524288)) * 524288 + rnd() % hot } else { rnd() % range };
            let ns = h.request(Op::Write, at(b, 1), 0).unwrap();
            worst = worst.max(ns);
            n += 1;
        }
        total += n;
        let c = h.drive.counters(); let s = h.drive.snapshot();
        if m < 10 || m % 10 == 9 { println!("{:4} min {:9.1} /s worst {:6.2} s entries {:7} dirty {:6} cleaned {:6} cleaning {:5.1} %", m + 1, n as f64 / ((h.now_ns - start) as f64 / 1e9), worst as f64 / 1e9, s.cache_entries, s.bands_dirty, c.bands_cleaned_forced, c.cleaning_ns as f64 / h.now_ns as f64 * 100.0); }
    }
    println!("host time {:.2} us a request, {} requests", t0.elapsed().as_secs_f64() * 1e6 / total as f64, total);
}
