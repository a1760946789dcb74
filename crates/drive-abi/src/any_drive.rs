// SPDX-License-Identifier: GPL-2.0-only
//! What is behind the handle: the drive of a profile, or the crash explorer's. What only one of them can has a default
//! that the other keeps.

use crate::layout::ShingleGeometry;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use crash_drive::CrashDrive;
use smr_drive::faults::FaultPlan;
use smr_drive::profile::Translation;
use smr_drive::request::{Class, Completion, Refusal, Request};
use smr_drive::Drive;
use zoned::{BlockRange, Zone, ZoneId};

const EOPNOTSUPP: i32 = 95;

/// A drive, as the C ABI asks it.
pub trait AnyDrive {
    /// What the host must know.
    fn geometry(&self) -> ShingleGeometry;
    /// A piece of the data of the write that will be submitted under `tag`.
    fn put(&mut self, tag: u64, offset: usize, data: &[u8]) -> Result<(), Refusal>;
    /// That write will not come.
    fn forget_staged(&mut self, tag: u64);
    /// Accepts a request.
    fn submit(&mut self, now_ns: u64, request: Request) -> Result<(), Refusal>;
    /// Fetches data; false if they are damaged.
    fn get(&mut self, sector: u64, data: &mut [u8]) -> bool;
    /// When something happens next.
    fn next_event(&self) -> Option<u64>;
    /// Lets time pass; at most `max` completions.
    fn advance(&mut self, now_ns: u64, max: usize, done: &mut dyn FnMut(Completion));
    /// Writes a marker into the trace or the record.
    fn mark(&mut self, now_ns: u64, text: &[u8]);
    /// Takes bytes of the trace or the record.
    fn trace_take(&mut self, buf: &mut [u8]) -> usize;

    /// From now on things go wrong as the plan says.
    fn set_faults(&mut self, _plan: &[u8]) -> Result<(), String> {
        Err("a crash drive has no faults".into())
    }
    /// A zone's report.
    fn zone(&self, _zone: ZoneId) -> Option<Zone> {
        None
    }
    /// The counters as JSON: nothing is counted, and there is never anything to clean.
    fn report(&mut self, _now_ns: u64, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("{\"clean\":1}")
    }
    /// How long requests took, as JSON.
    fn report_latencies(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("{}")
    }
    /// Where a class of data lies.
    fn set_class(&mut self, _class: Class, _ranges: Vec<BlockRange>) {}
    /// Sets the drive to a state of its file, if it has that.
    fn set_state(&mut self, _state: u32) -> bool {
        false
    }
    /// The link is reset: all requests are forgotten. False: this drive knows no reset, and nothing happened.
    fn reset(&mut self, _now_ns: u64) -> bool {
        false
    }
    /// Power fails.
    fn power_cut(&mut self, _now_ns: u64) {}
    /// Writes the drive file, piece by piece, until a status is not 0: that, or a negative error number.
    fn save(&self, _write: &mut dyn FnMut(&[u8]) -> i32) -> i32 {
        -EOPNOTSUPP
    }
}

impl AnyDrive for Drive {
    fn geometry(&self) -> ShingleGeometry {
        let profile = self.profile();
        ShingleGeometry {
            capacity_sectors: profile.capacity_sectors(),
            logical_block_bytes: profile.logical_block_bytes,
            physical_block_bytes: profile.physical_block_bytes,
            queue_depth: profile.interface.queue_depth,
            max_request_sectors: profile.interface.max_request_sectors,
            volatile_cache: profile.buffer.write_cache.into(),
            fua: profile.buffer.write_cache.into(),
            discard: self.has_discard().into(),
            zoned: match &profile.translation {
                Translation::HostManaged(_) => 2,
                _ => 0,
            },
            zone_sectors: Drive::zone(self, ZoneId(0)).map_or(0, |zone| zone.size_sectors),
            zones: self.zones(),
            open_max: profile.open_zones().unwrap_or(0),
            read_restricted: match &profile.translation {
                Translation::HostManaged(zones) => zones.read_restricted.into(),
                _ => 0,
            },
        }
    }
    fn put(&mut self, tag: u64, offset: usize, data: &[u8]) -> Result<(), Refusal> {
        Drive::put(self, tag, offset, data)
    }
    fn forget_staged(&mut self, tag: u64) {
        Drive::forget_staged(self, tag);
    }
    fn submit(&mut self, now_ns: u64, request: Request) -> Result<(), Refusal> {
        Drive::submit(self, now_ns, request)
    }
    fn get(&mut self, sector: u64, data: &mut [u8]) -> bool {
        Drive::get(self, sector, data).is_ok()
    }
    fn next_event(&self) -> Option<u64> {
        Drive::next_event(self)
    }
    fn advance(&mut self, now_ns: u64, max: usize, done: &mut dyn FnMut(Completion)) {
        Drive::advance(self, now_ns, max, done);
    }
    fn mark(&mut self, now_ns: u64, text: &[u8]) {
        Drive::mark(self, now_ns, text);
    }
    fn trace_take(&mut self, buf: &mut [u8]) -> usize {
        Drive::trace_take(self, buf)
    }
    fn set_faults(&mut self, plan: &[u8]) -> Result<(), String> {
        Drive::set_faults(self, FaultPlan::from_bytes(plan)?)
    }
    fn zone(&self, zone: ZoneId) -> Option<Zone> {
        Drive::zone(self, zone)
    }
    fn report(&mut self, now_ns: u64, out: &mut dyn fmt::Write) -> fmt::Result {
        Drive::report(self, now_ns, out)
    }
    fn report_latencies(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        Drive::report_latencies(self, out)
    }
    fn set_class(&mut self, class: Class, ranges: Vec<BlockRange>) {
        Drive::set_class(self, class, ranges);
    }
    fn reset(&mut self, now_ns: u64) -> bool {
        Drive::reset(self, now_ns)
    }
    fn power_cut(&mut self, now_ns: u64) {
        Drive::power_cut(self, now_ns);
    }
    fn save(&self, write: &mut dyn FnMut(&[u8]) -> i32) -> i32 {
        let saved = Drive::save(self, |piece| match write(piece) {
            0 => Ok(()),
            status => Err(status),
        });
        saved.err().unwrap_or(0)
    }
}

impl AnyDrive for CrashDrive<'static> {
    fn geometry(&self) -> ShingleGeometry {
        let disk = self.disk();
        ShingleGeometry {
            capacity_sectors: u64::from(disk.blocks) * crash_drive::BLOCK_SECTORS,
            logical_block_bytes: crash_drive::SECTOR_BYTES as u32,
            physical_block_bytes: crash_drive::BLOCK_BYTES as u32,
            queue_depth: crash_drive::QUEUE_DEPTH,
            max_request_sectors: crash_drive::MAX_REQUEST_SECTORS,
            volatile_cache: 1,
            fua: disk.fua.into(),
            discard: 0,
            zoned: 0,
            zone_sectors: 0,
            zones: 0,
            open_max: 0,
            read_restricted: 0,
        }
    }
    fn put(&mut self, tag: u64, offset: usize, data: &[u8]) -> Result<(), Refusal> {
        CrashDrive::put(self, tag, offset, data)
    }
    fn forget_staged(&mut self, tag: u64) {
        CrashDrive::forget_staged(self, tag);
    }
    fn submit(&mut self, now_ns: u64, request: Request) -> Result<(), Refusal> {
        CrashDrive::submit(self, now_ns, request)
    }
    fn get(&mut self, sector: u64, data: &mut [u8]) -> bool {
        CrashDrive::get(self, sector, data)
    }
    fn next_event(&self) -> Option<u64> {
        CrashDrive::next_event(self)
    }
    fn advance(&mut self, now_ns: u64, max: usize, done: &mut dyn FnMut(Completion)) {
        CrashDrive::advance(self, now_ns, max, done);
    }
    fn mark(&mut self, _now_ns: u64, text: &[u8]) {
        CrashDrive::mark(self, text);
    }
    fn trace_take(&mut self, buf: &mut [u8]) -> usize {
        CrashDrive::record_take(self, buf)
    }
    fn set_state(&mut self, state: u32) -> bool {
        CrashDrive::set_state(self, state)
    }
}
