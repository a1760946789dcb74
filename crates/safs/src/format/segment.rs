// SPDX-License-Identifier: MIT OR Apache-2.0
//! Segments: a header, payload blocks, and the header again. The second header is the other copy of the checksums, and the
//! proof that the segment was written to its end.

use super::{
    checksum, is_sealed, Damage, Ino, Key, Reader, Uuid, Writer, ZoneEntry, BLOCK, ZONE_ENTRY_BYTES,
};
use zoned::ZoneId;

const FIRST: &[u8; 8] = b"SAFSSG01";
const COPY: &[u8; 8] = b"SAFSSG02";
const CRC_AT: usize = 8;
const LOG: u16 = 1;

/// Bytes of a header before its records.
pub const HEADER_FIXED_BYTES: usize = 136;
/// Blocks of the largest segment, both headers included: 16 MiB.
pub const SEGMENT_BLOCKS_MAX: u32 = 4096;
/// No zone.
pub const NO_ZONE: ZoneId = ZoneId(u32::MAX);

/// One change of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key has this value from now on.
    Put(Key, Vec<u8>),
    /// The key is gone.
    Delete(Key),
    /// The zone's entry is this from now on.
    Zone(ZoneId, ZoneEntry),
    /// So many live bytes more in the zone.
    Live(ZoneId, i64),
    /// What the payload is; of segments outside the log. Nothing is changed by it.
    Data(DataRecord),
}

/// What a piece of a segment is, for those who come from the zone and not from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRecord {
    /// The file.
    pub ino: Ino,
    /// Its first logical block in the piece.
    pub logical: u64,
    /// Bytes.
    pub bytes: u32,
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const ZONE: u8 = 4;
const LIVE: u8 = 5;
const DATA: u8 = 6;
const LAST_OF_BATCH: u8 = 1;

/// Bytes of a record with a key and a value of these lengths.
pub fn record_bytes(key: usize, value: usize) -> usize {
    (8 + key + value).next_multiple_of(8)
}

impl Change {
    /// Bytes of its record.
    pub fn bytes(&self) -> usize {
        match self {
            Change::Put(key, value) => record_bytes(key.0.len(), value.len()),
            Change::Delete(key) => record_bytes(key.0.len(), 0),
            Change::Zone(..) => record_bytes(4, ZONE_ENTRY_BYTES),
            Change::Live(..) => record_bytes(4, 8),
            Change::Data(_) => record_bytes(0, 20),
        }
    }

    fn encode(&self, is_last: bool) -> Vec<u8> {
        let number = |zone: &ZoneId| zone.0.to_le_bytes().to_vec();
        let (kind, key, value) = match self {
            Change::Put(key, value) => (PUT, key.0.to_vec(), value.clone()),
            Change::Delete(key) => (DELETE, key.0.to_vec(), Vec::new()),
            Change::Zone(zone, entry) => (ZONE, number(zone), entry.encode().to_vec()),
            Change::Live(zone, delta) => (LIVE, number(zone), delta.to_le_bytes().to_vec()),
            Change::Data(data) => {
                let value = Writer::new().u64(data.ino.0).u64(data.logical);
                (DATA, Vec::new(), value.u32(data.bytes).finish())
            }
        };
        Writer::new()
            .u8(kind)
            .u8(if is_last { LAST_OF_BATCH } else { 0 })
            .u16(u16::try_from(key.len()).expect("a key is shorter than 64 KiB"))
            .u32(u32::try_from(value.len()).expect("a value is shorter than 4 GiB"))
            .bytes(&key)
            .bytes(&value)
            .padded(record_bytes(key.len(), value.len()))
    }

    /// Reads a record; also says whether it is its batch's last.
    fn decode(from: &mut Reader) -> Result<(Self, bool), Damage> {
        let (kind, flags) = (from.u8()?, from.u8()?);
        let (key_bytes, value_bytes) = (usize::from(from.u16()?), from.u32()? as usize);
        let key = from.bytes(key_bytes)?;
        let value = from.bytes(value_bytes)?;
        let padding = record_bytes(key_bytes, value_bytes) - 8 - key_bytes - value_bytes;
        from.bytes(padding)?;
        let zone = || Reader::new(key).u32().map(ZoneId);
        let change = match kind {
            PUT => Change::Put(Key(key.into()), value.to_vec()),
            DELETE => Change::Delete(Key(key.into())),
            ZONE => Change::Zone(zone()?, ZoneEntry::decode(value)?),
            LIVE => Change::Live(zone()?, Reader::new(value).i64()?),
            DATA => {
                let mut value = Reader::new(value);
                Change::Data(DataRecord {
                    ino: Ino(value.u64()?),
                    logical: value.u64()?,
                    bytes: value.u32()?,
                })
            }
            _ => return Err(Damage("a record is of no known type")),
        };
        Ok((change, flags & LAST_OF_BATCH != 0))
    }
}

/// Batches of changes as they are in a header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// How many records they are.
    pub count: u32,
}

impl Records {
    /// Adds a batch: applied whole or not at all.
    pub fn push(&mut self, batch: &[Change]) {
        for (i, change) in batch.iter().enumerate() {
            self.bytes.extend(change.encode(i + 1 == batch.len()));
            self.count += 1;
        }
    }

    /// Adds batches that already are bytes.
    pub fn append(&mut self, other: &Records) {
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
    }

    /// The batches. One without an end is an error: whoever wrote the header wrote whole ones.
    pub fn batches(&self) -> Result<Vec<Vec<Change>>, Damage> {
        let mut from = Reader::new(&self.bytes);
        let mut batches = Vec::new();
        let mut batch = Vec::new();
        for _ in 0..self.count {
            let (change, is_last) = Change::decode(&mut from)?;
            batch.push(change);
            if is_last {
                batches.push(std::mem::take(&mut batch));
            }
        }
        if !batch.is_empty() || from.left() != 0 {
            return Err(Damage("its last batch has no end"));
        }
        Ok(batches)
    }
}

/// See docs/reference/safs-format.md, 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Part of the log; else only data, which the log names.
    pub is_log: bool,
    /// Counts segments.
    pub seq: u64,
    /// Counts log segments; 0 outside the log.
    pub log_seq: u64,
    /// The zone's life that it belongs to.
    pub epoch: u64,
    /// Its zone.
    pub zone: ZoneId,
    /// Its first block in the zone.
    pub block: u32,
    /// Blocks between the two headers.
    pub payload_blocks: u32,
    /// Where the zone's previous segment starts; its own block if there is none.
    pub previous: u32,
    /// Where the log goes on when this zone is full, or `NO_ZONE`.
    pub next_zone: ZoneId,
    /// That zone's epoch.
    pub next_epoch: u64,
    /// All segments up to this one were durable before this one was written.
    pub flushed_seq: u64,
    /// When, nanoseconds since 1970.
    pub time_ns: i64,
    /// The mount that wrote it.
    pub mount_gen: u64,
    /// The newest durable root record then.
    pub root_seq: u64,
    /// Batches.
    pub records: Records,
    /// CRC-32C of each payload block.
    pub checksums: Vec<u32>,
    /// Ends of files, each at a multiple of eight bytes.
    pub fragments: Vec<u8>,
}

impl Header {
    /// Where fragments start in a header with so many bytes of records and so many payload blocks.
    pub fn fragments_at(records_bytes: usize, payload_blocks: usize) -> usize {
        (HEADER_FIXED_BYTES + records_bytes + 4 * payload_blocks).next_multiple_of(8)
    }

    /// Blocks of a header.
    pub fn blocks_for(records_bytes: usize, payload_blocks: usize, fragments_bytes: usize) -> u32 {
        let bytes = Header::fragments_at(records_bytes, payload_blocks) + fragments_bytes;
        u32::try_from(bytes.div_ceil(BLOCK)).unwrap_or(u32::MAX)
    }

    /// Blocks of this header.
    pub fn blocks(&self) -> u32 {
        Header::blocks_for(
            self.records.bytes.len(),
            self.checksums.len(),
            self.fragments.len(),
        )
    }

    /// Blocks of its segment.
    pub fn segment_blocks(&self) -> u32 {
        2 * self.blocks() + self.payload_blocks
    }

    /// Where a fragment starts, in bytes from the segment's start.
    pub fn fragment_offset(&self, in_fragments: usize) -> u64 {
        let at = Header::fragments_at(self.records.bytes.len(), self.checksums.len());
        (at + in_fragments) as u64
    }

    /// Both headers: the one before the payload and the one behind.
    pub fn encode(&self, uuid: &Uuid) -> (Vec<u8>, Vec<u8>) {
        let blocks = self.blocks();
        let fragments_at = Header::fragments_at(self.records.bytes.len(), self.checksums.len());
        let small = |value: usize| u32::try_from(value).expect("a header is smaller than 16 MiB");
        let mut fields = Writer::new()
            .bytes(FIRST)
            .u32(0)
            .u16(u16::try_from(blocks).expect("a header has fewer blocks than a segment"))
            .u16(if self.is_log { LOG } else { 0 })
            .bytes(uuid)
            .u64(self.seq)
            .u64(self.log_seq)
            .u64(self.epoch)
            .u32(self.zone.0)
            .u32(self.block)
            .u32(self.payload_blocks)
            .u32(self.previous)
            .u32(small(self.records.bytes.len()))
            .u32(self.records.count)
            .u32(small(fragments_at))
            .u32(small(self.fragments.len()))
            .u32(self.next_zone.0)
            .u32(0)
            .u64(self.next_epoch)
            .u64(self.flushed_seq)
            .i64(self.time_ns)
            .u64(self.mount_gen)
            .u64(self.root_seq)
            .bytes(&self.records.bytes);
        for crc in &self.checksums {
            fields = fields.u32(*crc);
        }
        let mut first = fields.padded(fragments_at);
        first.extend_from_slice(&self.fragments);
        first.resize(blocks as usize * BLOCK, 0);
        let mut copy = first.clone();
        copy[..8].copy_from_slice(COPY);
        for bytes in [&mut first, &mut copy] {
            let crc = checksum(bytes, CRC_AT);
            bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        }
        (first, copy)
    }

    /// How many blocks the header has whose first block this is; also says whether it is the copy.
    pub fn length(block: &[u8], uuid: &Uuid) -> Result<(u32, bool), Damage> {
        let mut from = Reader::new(block);
        let magic = from.bytes(8)?;
        if magic != FIRST && magic != COPY {
            return Err(Damage("no segment header"));
        }
        from.u32()?;
        let blocks = u32::from(from.u16()?);
        from.u16()?;
        if from.bytes(16)? != uuid {
            return Err(Damage("it belongs to another file system"));
        }
        if blocks == 0 || blocks > SEGMENT_BLOCKS_MAX / 2 {
            return Err(Damage("its length is impossible"));
        }
        Ok((blocks, magic == COPY))
    }

    /// Checks a whole header, either of the two, and reads it.
    pub fn decode(bytes: &[u8], uuid: &Uuid) -> Result<Self, Damage> {
        let (blocks, _) = Header::length(bytes, uuid)?;
        if bytes.len() != blocks as usize * BLOCK || !is_sealed(bytes, CRC_AT) {
            return Err(Damage("its checksum is wrong"));
        }
        let mut from = Reader::new(bytes);
        from.bytes(14)?;
        let flags = from.u16()?;
        from.bytes(16)?;
        let (seq, log_seq, epoch) = (from.u64()?, from.u64()?, from.u64()?);
        let (zone, block) = (ZoneId(from.u32()?), from.u32()?);
        let (payload_blocks, previous) = (from.u32()?, from.u32()?);
        let (records_bytes, count) = (from.u32()? as usize, from.u32()?);
        let (fragments_at, fragments_bytes) = (from.u32()? as usize, from.u32()? as usize);
        let next_zone = ZoneId(from.u32()?);
        from.u32()?;
        let (next_epoch, flushed_seq, time_ns) = (from.u64()?, from.u64()?, from.i64()?);
        let (mount_gen, root_seq) = (from.u64()?, from.u64()?);
        if u64::from(payload_blocks) + 2 * u64::from(blocks) > u64::from(SEGMENT_BLOCKS_MAX) {
            return Err(Damage("its payload is too long"));
        }
        let records = Records {
            bytes: from.bytes(records_bytes)?.to_vec(),
            count,
        };
        let checksums = (0..payload_blocks)
            .map(|_| from.u32())
            .collect::<Result<Vec<_>, _>>()?;
        let end = fragments_at.checked_add(fragments_bytes);
        let fragments = end.and_then(|end| bytes.get(fragments_at..end));
        let fragments = fragments
            .ok_or(Damage("its fragments are outside"))?
            .to_vec();
        let header = Header {
            is_log: flags & LOG != 0,
            seq,
            log_seq,
            epoch,
            zone,
            block,
            payload_blocks,
            previous,
            next_zone,
            next_epoch,
            flushed_seq,
            time_ns,
            mount_gen,
            root_seq,
            records,
            checksums,
            fragments,
        };
        if header.blocks() != blocks
            || fragments_at != Header::fragments_at(records_bytes, payload_blocks as usize)
        {
            return Err(Damage("its lengths contradict each other"));
        }
        Ok(header)
    }
}
