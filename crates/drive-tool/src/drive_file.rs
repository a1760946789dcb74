// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drive files on the host: opening, writing, exporting.

use smr_drive::contents::{Contents, Damaged};
use smr_drive::file::{self, Opened};
use smr_drive::state::State;
use smr_drive::Drive;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use zoned::{Block, BLOCK_BYTES};

/// Bytes gathered before they are written to an image: large enough for the host's file system to write at full speed.
const EXPORT_BYTES: usize = 4 << 20;

/// Maps and opens a drive file. It stays mapped until the program ends.
pub fn open(path: &Path) -> Result<Opened, String> {
    let name = path.display();
    let handle = File::open(path).map_err(|why| format!("{name}: {why}"))?;
    if handle
        .metadata()
        .map_err(|why| format!("{name}: {why}"))?
        .len()
        == 0
    {
        return Err(format!("{name}: empty, not a drive file"));
    }
    // SAFETY: a drive file is never changed in place, only replaced.
    let map = unsafe { memmap2::Mmap::map(&handle) }.map_err(|why| format!("{name}: {why}"))?;
    let map: &'static memmap2::Mmap = Box::leak(Box::new(map));
    file::open(map).map_err(|why| format!("{name}: {why}"))
}

/// Says where a drive file is damaged.
pub fn damaged(path: &Path, leaf: Damaged) -> String {
    let first = leaf.leaf * 512 * 8;
    format!(
        "{}: damaged in its section 'contents', sectors {first}..{}",
        path.display(),
        first + 512 * 8
    )
}

/// Replaces the file at `path` by what `write` produces; a half-written one is never seen there.
fn replace<T>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<T>,
) -> Result<T, String> {
    let failed = |why: io::Error| format!("{}: {why}", path.display());
    let partial = path.with_extension("partial");
    let written = File::create(&partial).and_then(|file| {
        let mut buffered = BufWriter::with_capacity(EXPORT_BYTES, &file);
        let result = write(&mut buffered)?;
        buffered.flush()?;
        drop(buffered);
        std::fs::rename(&partial, path)?;
        Ok(result)
    });
    written.map_err(|why| {
        // The error in hand says more than that of a failing removal.
        let _ = std::fs::remove_file(&partial);
        failed(why)
    })
}

/// Writes a new drive.
pub fn create(state: &State, path: &Path) -> Result<(), String> {
    replace(path, |file| {
        file::save(state, &Contents::new(), &BTreeMap::new(), |bytes| {
            file.write_all(bytes)
        })
    })
}

/// Writes a drive as it is.
pub fn save(drive: &Drive, path: &Path) -> Result<(), String> {
    replace(path, |file| drive.save(|bytes| file.write_all(bytes)))
}

/// Writes the contents as a sparse raw image. Returns the bytes that are not zero.
pub fn export(opened: &mut Opened, path: &Path, from: &Path) -> Result<u64, String> {
    let failed = |why: io::Error| format!("{}: {why}", path.display());
    let image = File::create(path).map_err(failed)?;
    image
        .set_len(opened.state.profile.capacity_bytes)
        .map_err(failed)?;
    let mut run = Vec::with_capacity(EXPORT_BYTES);
    let mut run_start = Block(0);
    let mut total = 0;
    let mut result = Ok(());
    let capacity = opened.state.profile.capacity_bytes;
    let put = |run: &mut Vec<u8>, start: Block, result: &mut io::Result<()>| {
        let offset = start.0 * BLOCK_BYTES;
        let len = run.len().min((capacity - offset) as usize);
        if result.is_ok() && len > 0 {
            *result = image.write_all_at(&run[..len], offset);
        }
        run.clear();
    };
    let read = opened.contents.for_each(|block, bytes| {
        let continues = block.0 == run_start.0 + run.len() as u64 / BLOCK_BYTES;
        if !continues || run.len() >= EXPORT_BYTES {
            put(&mut run, run_start, &mut result);
            run_start = block;
        }
        run.extend_from_slice(bytes);
        total += BLOCK_BYTES;
    });
    put(&mut run, run_start, &mut result);
    read.map_err(|leaf| damaged(from, leaf))?;
    result.map_err(failed)?;
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use smr_drive::profile::sample;
    use std::io::Read;

    #[test]
    fn an_exported_image_holds_what_was_written_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("drive-tool-export-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (drive, image) = (folder.join("x.drive"), folder.join("x.img"));
        let mut state = State::new(sample::conventional(1 << 20), 1);
        state.profile.capacity_bytes = (1 << 20) - 512;
        let mut opened = Opened {
            state: Box::new(state),
            contents: Contents::new(),
        };
        for block in [3, 4, 255] {
            opened
                .contents
                .write(Block(block), &[block as u8; 4096])
                .unwrap();
        }
        save(&Drive::new(opened, 1), &drive).unwrap();
        let written = export(&mut open(&drive).unwrap(), &image, &drive).unwrap();
        let mut bytes = Vec::new();
        File::open(&image).unwrap().read_to_end(&mut bytes).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((bytes.len(), written), ((1 << 20) - 512, 3 * 4096));
        for (i, block) in bytes.chunks(4096).enumerate() {
            let fill = if [3, 4, 255].contains(&i) { i as u8 } else { 0 };
            assert!(block.iter().all(|b| *b == fill), "block {i}");
        }
    }
}
