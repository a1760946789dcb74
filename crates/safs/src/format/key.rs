// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys of the catalog: an inode number, a kind, and what the kind adds.

use super::{Damage, FileType, Reader, Short, Writer};
use std::fmt;

/// Longest file name, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest value: a symbolic link's target, an extended attribute.
pub const VALUE_MAX: usize = 4096;
/// The root directory.
pub const ROOT_INO: Ino = Ino(1);

/// Number of an inode; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ino(pub u64);

/// What a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// The inode itself.
    Inode = 1,
    /// An extended attribute; its name follows.
    Xattr = 2,
    /// A name in a directory; the name follows.
    Name = 3,
    /// The same by order of creation; its id follows.
    Order = 4,
    /// Where data are; the first logical block follows.
    Extent = 5,
    /// Where a symbolic link leads.
    Link = 6,
    /// Of inode 0: an inode without a name whose deletion is not finished.
    Orphan = 7,
    /// Of inode 0: an inode with a retention.
    Retain = 8,
    /// Of inode 0: a file whose end was not proven durable when the log was read after a crash.
    Unverified = 9,
}

/// A key. The order of its bytes is the order of the catalog.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub Short);

impl Key {
    fn new(ino: Ino, kind: Kind, rest: &[u8]) -> Key {
        let mut bytes = Short::with_capacity(9 + rest.len());
        bytes.extend_from_slice(&ino.0.to_be_bytes());
        bytes.push(kind as u8);
        bytes.extend_from_slice(rest);
        Key(bytes)
    }

    /// The inode of `ino`.
    pub fn inode(ino: Ino) -> Key {
        Key::new(ino, Kind::Inode, &[])
    }

    /// An extended attribute.
    pub fn xattr(ino: Ino, name: &[u8]) -> Key {
        Key::new(ino, Kind::Xattr, name)
    }

    /// A name in a directory.
    pub fn name(parent: Ino, name: &[u8]) -> Key {
        Key::new(parent, Kind::Name, name)
    }

    /// An entry of a directory by its id.
    pub fn order(parent: Ino, id: u64) -> Key {
        Key::new(parent, Kind::Order, &id.to_be_bytes())
    }

    /// The extent that starts at a logical block.
    pub fn extent(ino: Ino, logical: u64) -> Key {
        Key::new(ino, Kind::Extent, &logical.to_be_bytes())
    }

    /// A symbolic link's target.
    pub fn link(ino: Ino) -> Key {
        Key::new(ino, Kind::Link, &[])
    }

    /// The mark of an unfinished deletion.
    pub fn orphan(ino: Ino) -> Key {
        Key::new(Ino(0), Kind::Orphan, &ino.0.to_be_bytes())
    }

    /// The mark of an end to be checked.
    pub fn unverified(ino: Ino) -> Key {
        Key::new(Ino(0), Kind::Unverified, &ino.0.to_be_bytes())
    }

    /// The mark of a retention.
    pub fn retain(ino: Ino) -> Key {
        Key::new(Ino(0), Kind::Retain, &ino.0.to_be_bytes())
    }

    /// The first key of a kind.
    pub fn first(ino: Ino, kind: Kind) -> Key {
        Key::new(ino, kind, &[])
    }

    /// A key behind all of a kind.
    pub fn behind(ino: Ino, kind: Kind) -> Key {
        let mut key = Key::new(ino, kind, &[]);
        key.0[8] += 1;
        key
    }

    /// A key behind all of an inode.
    pub fn behind_all(ino: Ino) -> Key {
        Key::new(Ino(ino.0.saturating_add(1)), Kind::Inode, &[])
    }

    /// A key behind all that can be.
    pub fn last() -> Key {
        Key(Short::from_slice(&[0xff; 10]))
    }

    /// The inode that it belongs to.
    pub fn ino(&self) -> Option<Ino> {
        let bytes = self.0.get(..8)?.try_into().ok()?;
        Some(Ino(u64::from_be_bytes(bytes)))
    }

    /// Its kind's number.
    pub fn kind(&self) -> Option<u8> {
        self.0.get(8).copied()
    }

    /// What follows the kind.
    pub fn rest(&self) -> &[u8] {
        self.0.get(9..).unwrap_or(&[])
    }

    /// What follows the kind, if it is a number.
    pub fn number(&self) -> Option<u64> {
        Some(u64::from_be_bytes(self.rest().try_into().ok()?))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind() {
            Some(1) => "inode",
            Some(2) => "xattr",
            Some(3) => "name",
            Some(4) => "order",
            Some(5) => "extent",
            Some(6) => "link",
            Some(8) => "retain",
            Some(7) => "orphan",
            Some(9) => "unverified",
            _ => "?",
        };
        write!(f, "{} {kind}", self.ino().map_or(0, |ino| ino.0))?;
        match (self.kind(), self.number()) {
            (Some(4 | 5 | 7 | 9), Some(number)) => write!(f, " {number}"),
            _ if self.rest().is_empty() => Ok(()),
            _ => write!(f, " {:?}", String::from_utf8_lossy(self.rest())),
        }
    }
}

/// An entry of a directory, under both of its keys: `Name` has no name in its value, `Order` has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirent {
    /// The inode that it names.
    pub ino: Ino,
    /// Its number in the directory, in order of creation.
    pub id: u64,
    /// What it names.
    pub file_type: FileType,
    /// Its name.
    pub name: Vec<u8>,
}

impl Dirent {
    /// Value of its `Name` key.
    pub fn encode_name(&self) -> Vec<u8> {
        let fields = Writer::new().u64(self.ino.0).u64(self.id);
        fields.u8(self.file_type as u8).finish()
    }

    /// Value of its `Order` key.
    pub fn encode_order(&self) -> Vec<u8> {
        let fields = Writer::new().u64(self.ino.0).u8(self.file_type as u8);
        fields.bytes(&self.name).finish()
    }

    /// Reads a `Name` key and its value.
    pub fn decode_name(key: &Key, value: &[u8]) -> Result<Self, Damage> {
        let mut from = Reader::new(value);
        Ok(Dirent {
            ino: Ino(from.u64()?),
            id: from.u64()?,
            file_type: FileType::decode(from.u8()?)?,
            name: name(key.rest())?,
        })
    }

    /// Reads an `Order` key and its value.
    pub fn decode_order(key: &Key, value: &[u8]) -> Result<Self, Damage> {
        let mut from = Reader::new(value);
        Ok(Dirent {
            ino: Ino(from.u64()?),
            id: key.number().ok_or(Damage("an entry's key has no number"))?,
            file_type: FileType::decode(from.u8()?)?,
            name: name(from.bytes(from.left())?)?,
        })
    }
}

/// A name that no other directory is reached by, whatever an image says.
fn name(bytes: &[u8]) -> Result<Vec<u8>, Damage> {
    let is_name = (1..=NAME_MAX).contains(&bytes.len())
        && !bytes.iter().any(|byte| matches!(byte, 0 | b'/'))
        && bytes != b"."
        && bytes != b"..";
    match is_name {
        true => Ok(bytes.to_vec()),
        false => Err(Damage("a file cannot have this name")),
    }
}
