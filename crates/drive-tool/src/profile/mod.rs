// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drive profiles as people write them: TOML, and for every value its unit, its source, and how far to trust it.

mod convert;
mod reader;

pub use convert::convert;
pub use reader::{read, Parameter, ProfileError, ProfileText};

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
        let conventional = parse("wd5000ys.toml", CONVENTIONAL).unwrap();
        assert_eq!(conventional.translation, Translation::Conventional);
        assert_eq!(conventional.mechanics.revolution_ns, 8_333_333);
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
        assert!(wrong.contains("seek.knee"), "{wrong}");
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
