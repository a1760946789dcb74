// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! From logical to physical addresses, and what has to be done so that this stays possible.
//!
//! A translation layer is a file that implements [`TranslationLayer`], one variant of
//! [`profile::Translation`](crate::profile::Translation) and one of [`SavedTranslation`]. The drive asks it where the
//! pieces of a read are; whether it can take a write at all; what of the DRAM buffer to write next, and how long that
//! takes; and for a slice of whatever work it wants to do when nobody else needs the arm. Layers that show zones to the
//! host also judge requests when they arrive, and execute zone commands.
//!
//! What every layer promises, and `check` asserts as far as it can be seen from inside:
//!
//! INV-T1: `pieces` covers its range exactly, in order: no block is lost, none is in two places.
//! INV-T2: what `plan` chose and `land` was told is where `pieces` says from then on; until `land`, the old place counts.
//! INV-T3: what `save` returns, given the volatile blocks, describes a layer in which every other block is where it was.
//! INV-T4: space is accounted for: what `accepts` let in always finds room.

mod conventional;
pub mod dynamic_mapping;
mod layer;
mod merge;
pub mod static_mapping;
mod streams;
mod written;
pub mod zones;

use crate::mechanics::arm::Arm;
use crate::profile::{self, Profile};
use crate::state::SavedTranslation;
use alloc::boxed::Box;
pub use conventional::Conventional;
pub use dynamic_mapping::SBlocks;
pub use layer::{Destage, Need, TranslationLayer};
pub use static_mapping::StaticMapping;
pub use zones::{Enforcing, HostAware, HostManaged};

/// The translation layer of a profile, as it was saved.
pub fn new(profile: &Profile, arm: &Arm, saved: &SavedTranslation) -> Box<dyn TranslationLayer> {
    match &profile.translation {
        profile::Translation::Conventional => Box::new(Conventional::new(profile)),
        profile::Translation::StaticMapping(mapping) => {
            let fresh = Default::default();
            let saved = match saved {
                SavedTranslation::Static(saved) => saved,
                _ => &fresh,
            };
            Box::new(StaticMapping::new(
                mapping.clone(),
                profile,
                arm.layout(),
                saved,
            ))
        }
        profile::Translation::HostManaged(zones) => {
            let saved = match saved {
                SavedTranslation::Zones(saved) => saved.as_slice(),
                _ => &[],
            };
            Box::new(HostManaged::new(zones, profile, saved))
        }
        profile::Translation::Enforcing(enforcing) => {
            let saved = match saved {
                SavedTranslation::Zones(saved) => saved.as_slice(),
                _ => &[],
            };
            Box::new(Enforcing::new(enforcing, profile, saved))
        }
        profile::Translation::HostAware(zones) => {
            let fresh = Default::default();
            let saved = match saved {
                SavedTranslation::HostAware(saved) => saved,
                _ => &fresh,
            };
            Box::new(HostAware::new(zones, profile, arm.layout(), saved)).started()
        }
        profile::Translation::SBlocks(s_blocks) => {
            let fresh = Default::default();
            let saved = match saved {
                SavedTranslation::SBlocks(saved) => saved,
                _ => &fresh,
            };
            Box::new(SBlocks::new(s_blocks.clone(), profile, arm.layout(), saved))
        }
    }
}
