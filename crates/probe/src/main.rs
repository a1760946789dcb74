// SPDX-License-Identifier: MIT OR Apache-2.0
use probe::{plan::Plan, session::Session, simulated::SimulatedDisk};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let p = drive_tool::profile::load(std::path::Path::new(&a[1])).unwrap();
    let only: Vec<String> = a[2..].to_vec();
    let mut d = SimulatedDisk::used(p, 1);
    let mut s = Session::new(&mut d, 1, |t| eprintln!("... {t}"));
    let plan = Plan::new(&only, true).unwrap();
    let r = plan.run(&mut s);
    for f in &s.findings.0 {
        println!(
            "{} = {:?} {} {:?} {:?}\n      {}",
            f.key, f.value, f.unit, f.interval, f.confidence, f.how
        );
    }
    println!("{r:?} {:.0} s virtual", s.now_s());
}
