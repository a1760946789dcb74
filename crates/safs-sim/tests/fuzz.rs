// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sample of the forged images. The long run is `cargo run --release -p safs-sim --example suites -- fuzz`, whose panics end
//! it as they end the shipped program; docs/results/safs-tests.md.

use safs::format::{FileType, ROOT_INO};
use safs_sim::suites::config::{On, ONS};
use safs_sim::suites::forge::Forger;
use safs_sim::suites::fuzz;
use safs_sim::suites::random::Random;
use zoned::ZoneId;

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

/// Images that once made it panic: a random-write zone that was said to be free (2052, 2838, 4887), and a log that goes on
/// behind the end of its zone (2460, 2628, 2920).
#[test]
fn images_that_once_ended_the_server_do_not() {
    for (on, name) in ONS {
        let originals = fuzz::originals(on);
        for seed in [2052, 2460, 2628, 2838, 2920, 4887] {
            println!("--replay {name}:{seed}");
            fuzz::run(seed, &originals, &mut fuzz::Counts::new());
        }
    }
}

/// A random-write zone has epoch 0, and a segment's header may say that the log goes on there.
#[test]
fn the_log_never_goes_on_in_a_random_write_zone() {
    let mut random = Random::new(1);
    for original in fuzz::originals(On::Managed) {
        let mut forger = Forger::new(&original, &mut random);
        forger.name_next(ZoneId(3), 0);
        let options = safs_sim::suites::config::small(safs::Placement::Log);
        let Ok(mut fs) = safs::FileSystem::mount(forger.disk, options, 9) else {
            continue;
        };
        let made = fs.create(
            ROOT_INO,
            b"new",
            FileType::Regular,
            safs::Owner::default(),
            0,
        );
        let file = made.unwrap();
        // More than two zones hold.
        for number in 0..30u64 {
            fs.write(file, number * 20_000, &[7; 20_000]).unwrap();
            fs.fsync(file).unwrap();
        }
        assert_eq!(fs.read(file, 590_000, 99_999).unwrap(), vec![7; 10_000]);
    }
}

/// An image of which nothing is forged is what it was.
#[test]
fn an_original_is_sound() {
    for (on, name) in ONS {
        for original in fuzz::originals(on) {
            let options = safs_sim::suites::config::small(safs::Placement::Log);
            let mut fs = safs::FileSystem::mount(original.disk, options, 9).unwrap();
            let report = fs.check(true, |_| ()).unwrap();
            assert_eq!(report.problems, Vec::<String>::new(), "{name}");
        }
    }
}
