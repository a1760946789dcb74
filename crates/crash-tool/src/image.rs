// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images and files of states.

use crate::pool::{Contents, Pool};
use crash_drive::states::{Builder, Disk};
use crash_drive::BLOCK_BYTES;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Reads a raw image; its length must be whole blocks.
pub fn read(path: &Path, pool: &mut Pool) -> io::Result<(u32, Contents)> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let blocks = u32::try_from(bytes / BLOCK_BYTES as u64).unwrap_or(u32::MAX);
    if bytes != u64::from(blocks) * BLOCK_BYTES as u64 {
        let text = format!("an image of {bytes} bytes is not whole blocks of {BLOCK_BYTES}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut contents = Contents::new();
    let mut data = [0; BLOCK_BYTES];
    for block in 0..blocks {
        file.read_exact(&mut data)?;
        pool.set(&mut contents, block, &data);
    }
    Ok((blocks, contents))
}

/// Writes a sparse raw image.
pub fn write(path: &Path, disk: Disk, contents: &Contents, pool: &Pool) -> io::Result<File> {
    let mut options = File::options();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    file.set_len(u64::from(disk.blocks) * BLOCK_BYTES as u64)?;
    // Runs of neighbours in one call.
    let mut run: Vec<u8> = Vec::new();
    let mut start = 0;
    for (block, number) in contents {
        let next = start + (run.len() / BLOCK_BYTES) as u32;
        if *block != next || run.len() >= 1 << 20 {
            file.write_all_at(&run, u64::from(start) * BLOCK_BYTES as u64)?;
            run.clear();
            start = *block;
        }
        run.extend_from_slice(&pool.blocks()[*number as usize]);
    }
    file.write_all_at(&run, u64::from(start) * BLOCK_BYTES as u64)?;
    Ok(file)
}

/// What an image holds by now that held `before`.
pub fn changed(
    file: &File,
    disk: Disk,
    before: &Contents,
    pool: &mut Pool,
) -> io::Result<Contents> {
    const AT_ONCE: usize = 64;
    let mut after = before.clone();
    let mut data = vec![0; AT_ONCE * BLOCK_BYTES];
    for first in (0..disk.blocks).step_by(AT_ONCE) {
        let count = AT_ONCE.min((disk.blocks - first) as usize);
        let data = &mut data[..count * BLOCK_BYTES];
        file.read_exact_at(data, u64::from(first) * BLOCK_BYTES as u64)?;
        for (block, found) in (first..).zip(data.chunks_exact(BLOCK_BYTES)) {
            let found: &[u8; BLOCK_BYTES] = found.try_into().expect("a block");
            let same = match before.get(&block) {
                Some(number) => pool.blocks()[*number as usize] == *found,
                None => found.iter().all(|byte| *byte == 0),
            };
            if !same {
                pool.set(&mut after, block, found);
            }
        }
    }
    Ok(after)
}

/// Writes a file of states.
pub fn write_states(path: &Path, disk: Disk, states: &[Contents], pool: &Pool) -> io::Result<()> {
    let mut builder = Builder::new(disk);
    for contents in states {
        builder.state(contents.iter().map(|(block, number)| (*block, *number)));
    }
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&builder.head(pool.blocks().len() as u32))?;
    for block in pool.blocks() {
        file.write_all(block)?;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_comes_back_and_its_changes_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let disk = Disk {
            blocks: 200,
            delay_us: 0,
            fua: true,
        };
        let (mut pool, mut contents) = (Pool::default(), Contents::new());
        for block in [0, 1, 5, 199] {
            pool.set(&mut contents, block, &[block as u8 + 1; BLOCK_BYTES]);
        }
        let file = write(&path, disk, &contents, &pool).unwrap();
        assert_eq!(read(&path, &mut pool).unwrap(), (200, contents.clone()));
        file.write_all_at(&[0; BLOCK_BYTES], BLOCK_BYTES as u64)
            .unwrap();
        file.write_all_at(&[9], 100 * BLOCK_BYTES as u64).unwrap();
        let after = changed(&file, disk, &contents, &mut pool).unwrap();
        assert_eq!(after.keys().copied().collect::<Vec<_>>(), [0, 5, 100, 199]);
        assert_eq!(read(&path, &mut pool).unwrap().1, after);
    }
}
