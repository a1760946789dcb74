// SPDX-License-Identifier: MIT OR Apache-2.0
//! `safs mkfs`.

use crate::common::{bar, bytes, Outcome};
use crate::fuse::now_ns;
use safs::format::Uuid;
use safs::{check_device, make, MakeOptions};
use safs_tool::host::HostDevice;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use zoned::ZonedDevice;

#[derive(clap::Args)]
pub struct Arguments {
    /// The disk or the file
    device: PathBuf,
    /// Makes the file, with this many bytes (K, M, G, T)
    #[arg(long, value_parser = bytes)]
    size: Option<u64>,
    /// Bytes of a zone, a multiple of 1 MiB; the disk's own if not said, or 256M where it has none
    #[arg(long, value_parser = bytes)]
    zone_size: Option<u64>,
    /// Zones that are written in any order; a hundredth if not said
    #[arg(long)]
    random_zones: Option<u32>,
    /// A name, up to 64 bytes
    #[arg(short = 'L', long, default_value = "")]
    label: String,
    /// 32 hexadecimal digits; by chance if not said
    #[arg(long, value_parser = uuid)]
    uuid: Option<Uuid>,
}

fn uuid(text: &str) -> Result<Uuid, String> {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    let wrong = || format!("{text}: expected 32 hexadecimal digits");
    let number = (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok());
    Ok(number.flatten().ok_or_else(wrong)?.to_be_bytes())
}

/// What is made here and cannot be used does not stay.
pub fn act(arguments: &Arguments) -> Outcome {
    let device = &arguments.device;
    let is_new = arguments.size.is_some() && !device.exists();
    let made = format(arguments);
    if made.is_err() && is_new {
        let _ = std::fs::remove_file(device);
    }
    made
}

fn format(arguments: &Arguments) -> Outcome {
    let (path, label) = (&arguments.device, &arguments.label);
    let mut bytes = [0; 64];
    let place = bytes.get_mut(..label.len());
    place
        .ok_or("the label is longer than 64 bytes")?
        .copy_from_slice(label.as_bytes());
    let options = MakeOptions {
        uuid: arguments.uuid.map_or_else(random_uuid, Ok)?,
        label: bytes,
        now_ns: now_ns(),
    };
    let refused = |error: safs::Error| format!("{}: {error}", path.display());
    let Arguments {
        size,
        zone_size,
        random_zones,
        ..
    } = *arguments;
    let device = HostDevice::create(path, size, zone_size, random_zones)?;
    let mut device = check_device(device, &options).map_err(refused)?;
    let prepared = device.prepare();
    prepared.map_err(|why| format!("{}: {why}", path.display()))?;
    let bar = bar(
        u64::from(device.zones()),
        "resetting zones {bar:40} {pos}/{len}",
    );
    make(device, options, |zone| bar.set_position(u64::from(zone))).map_err(refused)?;
    bar.finish_and_clear();
    Ok(ExitCode::SUCCESS)
}

fn random_uuid() -> Outcome<Uuid> {
    let mut uuid = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut uuid));
    read.map_err(|why| format!("/dev/urandom: {why}"))?;
    Ok(uuid)
}
