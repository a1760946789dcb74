// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drive profiles as people write them: TOML, and for every value its unit, its source, and how far to trust it.

mod convert;
mod reader;

pub use convert::convert;
pub use reader::{range_of, read, Parameter, ProfileError, ProfileText};

use smr_drive::profile::Profile;
use std::path::Path;

/// Reads, checks and converts a profile.
pub fn load(path: &Path) -> Result<Profile, ProfileError> {
    let text = std::fs::read_to_string(path).map_err(|why| ProfileError {
        file: path.display().to_string(),
        line: 0,
        message: why.to_string(),
    })?;
    parse(&path.display().to_string(), &text)
}

/// The same from a text; `file` is its name in errors.
pub fn parse(file: &str, text: &str) -> Result<Profile, ProfileError> {
    convert(&read(file, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use smr_drive::profile::Translation;

    const SHINGLED: &str = include_str!("../../../../drives/st8000as0002.toml");
    const CONVENTIONAL: &str = include_str!("../../../../drives/wd5000ys.toml");

    fn refusal(text: &str) -> String {
        parse("x.toml", text).expect_err("refused").to_string()
    }

    #[test]
    fn the_profiles_of_the_house_are_right() {
        let shingled = parse("st8000as0002.toml", SHINGLED).unwrap();
        assert_eq!(shingled.capacity_sectors(), 15_628_053_168);
        assert!(matches!(
            shingled.translation,
            Translation::StaticMapping(_)
        ));
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drives");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                continue;
            }
            let profile = load(&path).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(path.file_stem().unwrap().to_str(), Some(&profile.name[..]));
        }
        let conventional = parse("wd5000ys.toml", CONVENTIONAL).unwrap();
        assert_eq!(conventional.translation, Translation::Conventional);
        assert_eq!(conventional.mechanics.revolution_ns, 8_333_333);
    }

    #[test]
    fn zones_have_the_sizes_and_numbers_of_their_sources() {
        let of = |name: &str, text: &str| {
            let profile = parse(name, text).unwrap();
            let zones = match &profile.translation {
                Translation::HostManaged(zones) => *zones,
                Translation::HostAware(disk) => disk.zones,
                Translation::Enforcing(disk) => disk.zones,
                other => panic!("{name}: {other:?}"),
            };
            assert_eq!(zones.zone_capacity_blocks, zones.zone_blocks);
            (
                profile.capacity_blocks().div_ceil(zones.zone_blocks),
                zones.zone_blocks >> 8,
                profile.buffer.write_cache,
            )
        };
        const MANAGED: &str = include_str!("../../../../drives/hc620.toml");
        const AWARE: &str = include_str!("../../../../drives/safs5000ha.toml");
        const ENFORCING: &str = include_str!("../../../../drives/wd30ezr-smr.toml");
        assert_eq!(of("hc620", MANAGED), (55_880, 256, true));
        assert_eq!(of("safs5000ha", AWARE), (18_631, 256, true));
        assert_eq!(of("wd30ezr-smr", ENFORCING), (20_000, 128, false));
        let capacity = "[translation]\nzone_capacity = { value = 300, unit = \"MiB\", source = \"x\", confidence = \"G\" }";
        let wrong = refusal(&MANAGED.replace("[translation]", capacity));
        assert!(wrong.contains("zone_capacity"), "{wrong}");
    }

    #[test]
    fn a_cache_inside_lies_on_the_drive_and_zones_have_equal_bands() {
        let rest = "unit = \"TB\", source = \"x\", confidence = \"G\" }";
        let with = |keys: &str| format!("[translation]\n{keys}");
        let at = |tb: f64| {
            let keys = with(&format!("cache_at = {{ value = {tb}, {rest}"));
            SHINGLED.replace("[translation]", &keys)
        };
        assert!(parse("x.toml", &at(6.0)).is_ok());
        let wrong = refusal(&at(9.0));
        assert!(wrong.contains("translation.cache_at"), "{wrong}");
        const AWARE: &str = include_str!("../../../../drives/safs5000ha.toml");
        let bands = |bands: f64| {
            let keys = format!("zone_bands = {{ value = {bands}, unit = \"1\", source = \"x\", confidence = \"G\" }}");
            AWARE.replace("[translation]", &with(&keys))
        };
        assert!(parse("x.toml", &bands(8.0)).is_ok());
        for wrong in [7.0, 2.5] {
            let wrong = refusal(&bands(wrong));
            assert!(wrong.contains("translation.zone_bands"), "{wrong}");
        }
    }

    #[test]
    fn s_blocks_need_buffers_that_hold_two_of_them() {
        const S_BLOCKS: &str = include_str!("../../../../drives/wd40nmzw.toml");
        let profile = parse("wd40nmzw.toml", S_BLOCKS).unwrap();
        assert!(matches!(profile.translation, Translation::SBlocks(_)));
        let wrong = refusal(&S_BLOCKS.replace("cache = { value = 40,", "cache = { value = 1,"));
        assert!(wrong.contains("translation.cache"), "{wrong}");
        let wrong =
            refusal(&S_BLOCKS.replace("low_water = { value = 5,", "low_water = { value = 95,"));
        assert!(wrong.contains("translation.low_water"), "{wrong}");
    }

    #[test]
    fn a_wrong_unit_is_refused_with_line_and_key() {
        let wrong = refusal(&SHINGLED.replace(
            "value = 5980, unit = \"rpm\"",
            "value = 5980, unit = \"Hz\"",
        ));
        assert!(
            wrong.contains("x.toml:16")
                && wrong.contains("platters.spindle")
                && wrong.contains("rpm"),
            "{wrong}"
        );
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        let wrong = refusal(&SHINGLED.replace("\nheads =", "\nhaeds ="));
        assert!(
            wrong.contains("platters.haeds") && wrong.contains("platters.heads"),
            "{wrong}"
        );
    }

    #[test]
    fn a_missing_key_is_named() {
        let wrong = refusal(&CONVENTIONAL.replace("knee = ", "# "));
        assert!(
            wrong.contains("x.toml:20: seek.knee is missing: expected") && wrong.contains("stroke"),
            "{wrong}"
        );
    }

    #[test]
    fn a_value_without_a_source_is_refused() {
        let wrong = refusal(&CONVENTIONAL.replace("source = \"SATA 1.5 Gb/s\"", "source = \"\""));
        assert!(
            wrong.contains("interface.link_rate") && wrong.contains("source"),
            "{wrong}"
        );
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_the_range() {
        let wrong = refusal(&CONVENTIONAL.replace("value = 7200", "value = 72"));
        assert!(
            wrong.contains("platters.spindle") && wrong.contains("1000"),
            "{wrong}"
        );
    }
}
