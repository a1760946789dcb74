// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Disks that show zones to the host, or that enforce them.

mod enforcing;
mod host_aware;
mod host_managed;
mod zone_table;

pub use enforcing::Enforcing;
pub use host_aware::HostAware;
pub use host_managed::HostManaged;
