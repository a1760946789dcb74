// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is encoded reads back; any other bytes are refused, without a panic.

use proptest::collection::vec;
use proptest::prelude::*;
use safs::format::*;
use zoned::{Block, ZoneId};

const UUID: Uuid = *b"0123456789abcdef";

fn key() -> impl Strategy<Value = Key> {
    let name = vec(any::<u8>(), 1..40);
    (1..u64::MAX, any::<u64>(), name).prop_flat_map(|(ino, number, name)| {
        let ino = Ino(ino);
        prop_oneof![
            Just(Key::inode(ino)),
            Just(Key::extent(ino, number)),
            Just(Key::order(ino, number)),
            Just(Key::name(ino, &name)),
            Just(Key::xattr(ino, &name)),
        ]
    })
}

fn change() -> impl Strategy<Value = Change> {
    let zone = any::<u32>().prop_map(ZoneId);
    prop_oneof![
        (key(), vec(any::<u8>(), 0..300)).prop_map(|(key, value)| Change::Put(key, value)),
        key().prop_map(Change::Delete),
        (zone.clone(), any::<i64>()).prop_map(|(zone, delta)| Change::Live(zone, delta)),
        zone.prop_map(|zone| Change::Zone(zone, ZoneEntry::FREE)),
        (any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(ino, logical, bytes)| {
            Change::Data(DataRecord {
                ino: Ino(ino),
                logical,
                bytes,
            })
        }),
    ]
}

prop_compose! {
    fn header()(
        numbers in any::<[u64; 8]>(),
        places in any::<[u32; 4]>(),
        time_ns in any::<i64>(),
        is_log in any::<bool>(),
        batches in vec(vec(change(), 1..4), 0..12),
        checksums in vec(any::<u32>(), 0..60),
        fragments in vec(any::<u8>(), 0..3000),
    ) -> (Header, Vec<Vec<Change>>) {
        let mut records = Records::default();
        batches.iter().for_each(|batch| records.push(batch));
        let header = Header {
            is_log,
            seq: numbers[0],
            log_seq: numbers[1],
            epoch: numbers[2],
            zone: ZoneId(places[0]),
            block: places[1],
            payload_blocks: checksums.len() as u32,
            previous: places[2],
            next_zone: ZoneId(places[3]),
            next_epoch: numbers[3],
            flushed_seq: numbers[4],
            time_ns,
            mount_gen: numbers[5],
            root_seq: numbers[6],
            records,
            checksums,
            fragments,
        };
        (header, batches)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn both_headers_of_a_segment_read_back((header, batches) in header()) {
        let (first, copy) = header.encode(&UUID);
        for bytes in [&first, &copy] {
            prop_assert_eq!(Header::length(bytes, &UUID).unwrap().0, header.blocks());
            let read = Header::decode(bytes, &UUID).unwrap();
            prop_assert_eq!(&read, &header);
            prop_assert_eq!(read.records.batches().unwrap(), batches.clone());
        }
        prop_assert_eq!(first.len(), copy.len());
        prop_assert!(Header::decode(&first, b"another.........").is_err());
    }

    #[test]
    fn one_changed_bit_of_a_header_is_noticed((header, _) in header(), at in any::<prop::sample::Index>()) {
        let (mut bytes, _) = header.encode(&UUID);
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Header::decode(&bytes, &UUID).is_err());
    }

    /// A sum that wraps made any length acceptable.
    #[test]
    fn a_payload_that_is_too_long_is_refused((header, _) in header(), less in 0..8u32) {
        for payload_blocks in [SEGMENT_BLOCKS_MAX - 1, u32::MAX - less] {
            let (bytes, _) = Header { payload_blocks, ..header.clone() }.encode(&UUID);
            prop_assert_eq!(Header::decode(&bytes, &UUID), Err(Damage("its payload is too long")));
        }
    }

    #[test]
    fn a_node_reads_back_and_a_changed_one_does_not(
        cells in prop::collection::btree_map(key(), vec(any::<u8>(), 0..100), 1..60),
        at in any::<prop::sample::Index>(),
    ) {
        let cells = cells.into_iter().map(|(key, value)| Cell { key, value: value.into() }).collect();
        let node = Node { level: 0, cells };
        let (mut bytes, crc) = node.encode(&UUID, 7, Block(40));
        let pointer = Pointer { at: Block(40), crc, level: 0 };
        prop_assert_eq!(Node::decode(&bytes, &UUID, pointer), Ok(node));
        let elsewhere = [Pointer { level: 1, ..pointer }, Pointer { at: Block(44), ..pointer }];
        for wrong in elsewhere {
            prop_assert!(Node::decode(&bytes, &UUID, wrong).is_err());
        }
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Node::decode(&bytes, &UUID, pointer).is_err());
    }

    /// Also with a checksum that fits: lengths and counts are lies then, not accidents.
    #[test]
    fn decoders_take_any_bytes(mut bytes in vec(any::<u8>(), 4096 * 4), magic in 0..5usize) {
        let magics = [b"SAFSSB01", b"SAFSRT01", b"SAFSSG01", b"SAFSSG02", b"SAFSND01"];
        bytes[..8].copy_from_slice(magics[magic]);
        bytes[12..14].copy_from_slice(&4u16.to_le_bytes());
        bytes[16..32].copy_from_slice(&UUID);
        let head = crc32c::crc32c(&bytes[..8]);
        let head = crc32c::crc32c_append(head, &[0; 4]);
        let crc = crc32c::crc32c_append(head, &bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        let _ = Header::decode(&bytes, &UUID);
        let _ = Superblock::decode(&bytes[..4096]);
        let _ = Root::decode(&bytes[..4096], &UUID);
        let crc = crc32c::crc32c(&bytes);
        let _ = Node::decode(&bytes, &UUID, Pointer { at: Block(8), crc, level: bytes[8] });
        let records = Records { bytes, count: 100 };
        let _ = records.batches();
    }

    #[test]
    fn inodes_and_extents_read_back(numbers in any::<[u32; 6]>(), times in any::<[i64; 4]>(), size in 0..=FILE_BYTES_MAX) {
        let inode = Inode {
            file_type: FileType::Regular,
            permissions: numbers[0] & 0o7777,
            uid: numbers[1],
            gid: numbers[2],
            nlink: numbers[3],
            written: size / 2,
            size,
            head: size / 3,
            stored: size / 2,
            atime_ns: times[0],
            mtime_ns: times[1],
            ctime_ns: times[2],
            btime_ns: times[3],
            parent: Ino(u64::from(numbers[4])),
            children: 0,
            flags: 0,
            rdev: numbers[5],
            next_dirent: 9,
        };
        prop_assert_eq!(Inode::decode(&inode.encode()), Ok(inode));
        let extent = Extent {
            zone: ZoneId(numbers[0]),
            offset: u64::from(numbers[1]) * 8,
            bytes: numbers[2] % 4095 + 1,
            crc: numbers[3],
            header: numbers[4],
            is_fragment: true,
            is_hole: false,
        };
        prop_assert_eq!(Extent::decode(&extent.encode()), Ok(extent));
    }

    #[test]
    fn keys_sort_as_what_they_stand_for(a in any::<(u64, u64)>(), b in any::<(u64, u64)>()) {
        let key = |(ino, logical): (u64, u64)| Key::extent(Ino(ino), logical);
        prop_assert_eq!(a.cmp(&b), key(a).cmp(&key(b)));
    }
}

#[test]
fn superblock_and_root_read_back() {
    let superblock = Superblock {
        uuid: UUID,
        incompatible: 0,
        read_only_compatible: 0,
        zones: 40,
        zone_blocks: 256,
        random_zones: 5,
        mirror_blocks: 512,
        label: [b'x'; 64],
        made_ns: -1,
    };
    let bytes = superblock.encode();
    assert_eq!(Superblock::decode(&bytes), Ok(superblock));
    let root = Root {
        uuid: UUID,
        clean: true,
        root_seq: 3,
        mount_gen: 2,
        catalog: Some(Pointer {
            at: Block(77),
            crc: 5,
            level: 2,
        }),
        log: LogPosition {
            zone: ZoneId(9),
            block: 12,
            epoch: 1 << 32,
            log_seq: 88,
        },
        seq: 99,
        image: Image {
            at: Block(20),
            blocks: 3,
            crc: 1,
        },
        next_ino: 12,
        inodes: 4,
        time_ns: 1,
    };
    assert_eq!(Root::decode(&root.encode(), &UUID), Ok(root.clone()));
    // Numbers with which the next inode would be the root, or a count would wrap.
    for (next_ino, inodes) in [(1, 4), (0, 4), (u64::MAX, 4), (12, u64::MAX)] {
        let forged = Root {
            next_ino,
            inodes,
            ..root.clone()
        };
        assert!(Root::decode(&forged.encode(), &UUID).is_err());
    }
}
