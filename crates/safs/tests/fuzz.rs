// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sample of the forged images. The long run is `cargo run --release -p safs --example suites -- fuzz`, whose panics end
//! it as they end the shipped program; docs/safs-tests.md.

mod suites;

use suites::config::ONS;
use suites::fuzz;

/// Ends the program if more is asked for than any image of this size is worth.
#[global_allocator]
static MEMORY: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, 1 << 30);

#[test]
fn no_image_makes_it_panic_hang_read_outside_or_take_all_memory() {
    let mut counts = fuzz::Counts::new();
    for (on, name) in ONS {
        let originals = fuzz::originals(on);
        for seed in 0..400 {
            println!("--replay {name}:{seed}");
            fuzz::run(seed, &originals, &mut counts);
        }
    }
    println!("{counts:?}");
    assert_eq!(fuzz::missing(&counts), Vec::<String>::new());
}

/// An image of which nothing is forged is what it was.
#[test]
fn an_original_is_sound() {
    for (on, name) in ONS {
        for original in fuzz::originals(on) {
            let options = suites::config::small(safs::Placement::Log);
            let mut fs = safs::FileSystem::mount(original.disk, options, 9).unwrap();
            let report = fs.check(true, |_| ()).unwrap();
            assert_eq!(report.problems, Vec::<String>::new(), "{name}");
        }
    }
}
