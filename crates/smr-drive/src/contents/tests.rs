// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
use super::*;
use alloc::collections::BTreeMap;

fn sparse(fill: u8) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[100] = fill;
    block[4000] = fill.wrapping_add(1);
    block
}

fn read(contents: &mut Contents, at: u64) -> Vec<u8> {
    let mut out = vec![0xee; BLOCK];
    contents.read(Block(at), &mut out).unwrap();
    out
}

fn reopen(contents: &Contents, instead: &BTreeMap<Block, Value>) -> Contents {
    let (mut index, mut packed) = (Vec::new(), Vec::new());
    contents
        .pack(instead, |entry, bytes| {
            index.extend_from_slice(&entry.to_bytes());
            packed.extend_from_slice(bytes);
            Ok::<(), ()>(())
        })
        .unwrap();
    Contents::from_file(&index, packed.leak())
}

#[test]
fn blocks_of_every_kind_read_back_also_from_a_file() {
    let mut contents = Contents::new();
    let dense: Vec<u8> = (0..BLOCK).map(|i| (i % 251) as u8).collect();
    contents.write(Block(5), &sparse(7)).unwrap();
    contents.write(Block(6), &[0xab; BLOCK]).unwrap();
    contents.write(Block(1 << 30), &dense).unwrap();
    let mut again = reopen(&contents, &BTreeMap::new());
    for c in [&mut contents, &mut again] {
        assert_eq!(read(c, 4), vec![0; BLOCK]);
        assert_eq!(read(c, 5), sparse(7));
        assert_eq!(read(c, 6), vec![0xab; BLOCK]);
        assert_eq!(read(c, 1 << 30), dense);
    }
}

#[test]
fn a_write_of_the_same_bytes_changes_nothing() {
    let mut contents = Contents::new();
    assert!(contents.write(Block(5), &[0; BLOCK]).unwrap().is_none());
    assert!(contents.write(Block(5), &sparse(1)).unwrap().is_some());
    assert!(contents.write(Block(5), &sparse(1)).unwrap().is_none());
    let mut again = reopen(&contents, &BTreeMap::new());
    assert!(again.write(Block(5), &sparse(1)).unwrap().is_none());
    assert!(again.write(Block(5), &sparse(2)).unwrap().is_some());
}

#[test]
fn a_part_of_a_block_is_written_and_the_rest_kept() {
    let mut contents = Contents::new();
    contents.write(Block(9), &[0x11; BLOCK]).unwrap();
    contents.write_part(Block(9), 512, &[0x22; 512]).unwrap();
    let block = read(&mut contents, 9);
    assert_eq!(
        (block[511], block[512], block[1023], block[1024]),
        (0x11, 0x22, 0x22, 0x11)
    );
}

#[test]
fn the_old_value_can_be_put_back() {
    let mut contents = Contents::new();
    contents.write(Block(5), &sparse(1)).unwrap();
    let old = contents.write(Block(5), &sparse(2)).unwrap().unwrap();
    contents.restore(Block(5), old).unwrap();
    assert_eq!(read(&mut contents, 5), sparse(1));
    assert_eq!(
        contents.records_held(),
        1,
        "the replaced record was released"
    );
}

#[test]
fn zeroing_reports_only_what_was_not_zero() {
    let mut contents = Contents::new();
    contents.write(Block(600), &sparse(1)).unwrap();
    let mut seen = Vec::new();
    contents
        .zero(BlockRange::new(Block(0), Block(1 << 30)), |block, _| {
            seen.push(block)
        })
        .unwrap();
    assert_eq!(seen, [Block(600)]);
    assert_eq!(read(&mut contents, 600), vec![0; BLOCK]);
}

#[test]
fn other_values_can_be_packed_instead() {
    let mut contents = Contents::new();
    contents.write(Block(1), &sparse(1)).unwrap();
    let old = contents.write(Block(1), &sparse(2)).unwrap().unwrap();
    let fresh = contents.write(Block(5000), &sparse(3)).unwrap().unwrap();
    let mut cut = reopen(
        &contents,
        &BTreeMap::from([(Block(1), old), (Block(5000), fresh)]),
    );
    assert_eq!(read(&mut cut, 1), sparse(1));
    assert_eq!(read(&mut cut, 5000), vec![0; BLOCK]);
}

#[test]
fn a_damaged_leaf_is_an_error_and_not_other_data() {
    let mut contents = Contents::new();
    contents.write(Block(5), &sparse(7)).unwrap();
    let (mut index, mut packed) = (Vec::new(), Vec::new());
    contents
        .pack(&BTreeMap::new(), |entry, bytes| {
            index.extend_from_slice(&entry.to_bytes());
            packed.extend_from_slice(bytes);
            Ok::<(), ()>(())
        })
        .unwrap();
    packed[530] ^= 1;
    let mut again = Contents::from_file(&index, packed.leak());
    let mut out = vec![0; BLOCK];
    assert_eq!(again.read(Block(5), &mut out), Err(Damaged { leaf: 0 }));
}
