//! Files and directories, live and durable: what the calls are carried out on.

pub(crate) mod directory;
pub(crate) mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fuser::{Errno, FileAttr, FileType, INodeNo};

use self::directory::Directory;
use self::file::FileData;
use crate::survival::{Draw, Loss, Survives};

/// The inode of the root.
pub(crate) const ROOT: u64 = 1;

/// The reported size of a directory and of a special file.
const BLOCK_BYTES: u32 = 4096;

/// The largest file: no test writes a larger one, but a wrong offset may ask for it.
const FILE_BYTES_MAX: u64 = 1 << 31;

/// Everything on the disk.
#[derive(Debug)]
pub(crate) struct Disk {
    inodes: BTreeMap<u64, Inode>,
    /// Never used again, so that no number means two things to the kernel.
    next: u64,
    /// How many bytes there is room for, if that is bounded.
    pub(crate) capacity: Option<u64>,
}

#[derive(Clone, Debug)]
struct Inode {
    body: Body,
    mode: u16,
    uid: u32,
    gid: u32,
    changed: SystemTime,
    /// How often the kernel knows of it.
    lookups: u64,
}

#[derive(Clone, Debug)]
enum Body {
    File(FileData),
    Directory(Directory),
    Link(PathBuf),
    Special(FileType),
}

/// The creator of a new entry, and its mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maker {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mode: u32,
}

/// What is made.
#[derive(Clone, Debug)]
pub(crate) enum What {
    File,
    Directory,
    Link(PathBuf),
    Special(FileType),
}

/// What is to be changed of an inode besides its content.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
}

impl Disk {
    pub(crate) fn new() -> Self {
        let root = Inode::new(What::Directory, Maker { uid: 0, gid: 0, mode: 0o755 });
        Self { inodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1, capacity: None }
    }

    /// The bytes of all files, those included that are removed but still open.
    pub(crate) fn used(&self) -> u64 {
        self.inodes.values().map(Inode::size).sum()
    }

    pub(crate) fn lookup(&mut self, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let inode = self.directory(parent)?.get(name).ok_or(Errno::ENOENT)?;
        self.inode_mut(inode)?.lookups += 1;
        self.attributes(inode)
    }

    /// The kernel forgets `inode` so many times.
    pub(crate) fn forget(&mut self, inode: u64, count: u64) {
        if let Ok(found) = self.inode_mut(inode) {
            found.lookups = found.lookups.saturating_sub(count);
            self.drop_if_unnamed(inode);
        }
    }

    pub(crate) fn attributes(&self, number: u64) -> Result<FileAttr, Errno> {
        let inode = self.inode(number)?;
        let is_directory = matches!(inode.body, Body::Directory(_));
        Ok(FileAttr {
            ino: INodeNo(number),
            size: inode.size(),
            blocks: inode.size().div_ceil(512),
            atime: inode.changed,
            mtime: inode.changed,
            ctime: inode.changed,
            crtime: inode.changed,
            kind: inode.kind(),
            perm: inode.mode,
            nlink: if is_directory { 2 } else { 1 },
            uid: inode.uid,
            gid: inode.gid,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        })
    }

    pub(crate) fn set_attributes(
        &mut self,
        number: u64,
        wanted: Attributes,
    ) -> Result<FileAttr, Errno> {
        if let Some(size) = wanted.size {
            self.resize(number, size)?;
        }
        let inode = self.inode_mut(number)?;
        inode.mode = wanted.mode.map_or(inode.mode, permissions);
        inode.uid = wanted.uid.unwrap_or(inode.uid);
        inode.gid = wanted.gid.unwrap_or(inode.gid);
        self.attributes(number)
    }

    pub(crate) fn make(
        &mut self,
        parent: u64,
        name: &OsStr,
        what: What,
        maker: Maker,
    ) -> Result<FileAttr, Errno> {
        if self.directory(parent)?.get(name).is_some() {
            return Err(Errno::EEXIST);
        }
        let number = self.next;
        self.next += 1;
        let mut inode = Inode::new(what, maker);
        inode.lookups = 1;
        self.inodes.insert(number, inode);
        self.directory_mut(parent)?.change(vec![(name.to_owned(), Some(number))]);
        self.attributes(number)
    }

    pub(crate) fn link(
        &mut self,
        number: u64,
        parent: u64,
        name: &OsStr,
    ) -> Result<FileAttr, Errno> {
        if self.directory(parent)?.get(name).is_some() {
            return Err(Errno::EEXIST);
        }
        self.inode_mut(number)?.lookups += 1;
        self.directory_mut(parent)?.change(vec![(name.to_owned(), Some(number))]);
        self.attributes(number)
    }

    /// Removes a name; a directory only if it is one, is empty, and is meant.
    pub(crate) fn remove(
        &mut self,
        parent: u64,
        name: &OsStr,
        directory: bool,
    ) -> Result<(), Errno> {
        let number = self.directory(parent)?.get(name).ok_or(Errno::ENOENT)?;
        match (&self.inode(number)?.body, directory) {
            (Body::Directory(found), true) if !found.is_empty() => return Err(Errno::ENOTEMPTY),
            (Body::Directory(_), true) => {}
            (Body::Directory(_), false) => return Err(Errno::EISDIR),
            (_, true) => return Err(Errno::ENOTDIR),
            (_, false) => {}
        }
        self.directory_mut(parent)?.change(vec![(name.to_owned(), None)]);
        self.drop_if_unnamed(number);
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        (from, name): (u64, &OsStr),
        (to, new_name): (u64, &OsStr),
        replace: bool,
    ) -> Result<(), Errno> {
        let number = self.directory(from)?.get(name).ok_or(Errno::ENOENT)?;
        let replaced = self.directory(to)?.get(new_name);
        match replaced {
            Some(present) if present == number => return Ok(()),
            Some(_) if !replace => return Err(Errno::EEXIST),
            Some(present) => match (&self.inode(number)?.body, &self.inode(present)?.body) {
                (Body::Directory(_), Body::Directory(found)) if !found.is_empty() => {
                    return Err(Errno::ENOTEMPTY);
                }
                (Body::Directory(_), Body::Directory(_)) => {}
                (Body::Directory(_), _) => return Err(Errno::ENOTDIR),
                (_, Body::Directory(_)) => return Err(Errno::EISDIR),
                _ => {}
            },
            None => {}
        }
        let gone = (name.to_owned(), None);
        let here = (new_name.to_owned(), Some(number));
        if from == to {
            self.directory_mut(from)?.change(vec![gone, here]);
        } else {
            self.directory_mut(to)?.change(vec![here]);
            self.directory_mut(from)?.change(vec![gone]);
        }
        if let Some(replaced) = replaced {
            self.drop_if_unnamed(replaced);
        }
        Ok(())
    }

    pub(crate) fn target(&self, number: u64) -> Result<&Path, Errno> {
        match &self.inode(number)?.body {
            Body::Link(target) => Ok(target),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn list(&self, number: u64) -> Result<Vec<(u64, FileType, OsString)>, Errno> {
        let entries = self.directory(number)?.entries();
        entries.map(|(name, inode)| Ok((inode, self.inode(inode)?.kind(), name.clone()))).collect()
    }

    pub(crate) fn read(&self, number: u64, at: u64, count: u32) -> Result<&[u8], Errno> {
        Ok(self.file(number)?.read(at, usize::try_from(count).unwrap_or(usize::MAX)))
    }

    pub(crate) fn write(&mut self, number: u64, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        let end = at.saturating_add(bytes.len() as u64);
        self.needs_room(number, end)?;
        self.file_mut(number)?.write(at, bytes);
        Ok(())
    }

    pub(crate) fn resize(&mut self, number: u64, length: u64) -> Result<(), Errno> {
        self.needs_room(number, length)?;
        self.file_mut(number)?.resize(length);
        Ok(())
    }

    /// Sets room aside for a file up to `end`; it grows to it.
    pub(crate) fn grow(&mut self, number: u64, end: u64) -> Result<(), Errno> {
        if end > self.file(number)?.length() { self.resize(number, end) } else { Ok(()) }
    }

    pub(crate) fn sync(&mut self, number: u64) -> Result<(), Errno> {
        match &mut self.inode_mut(number)?.body {
            Body::File(file) => file.sync(),
            Body::Directory(directory) => directory.sync(),
            Body::Link(_) | Body::Special(_) => {}
        }
        Ok(())
    }

    pub(crate) fn sync_failed(&mut self, number: u64) {
        // Names lie in a journal, which is written again or not at all; pages are given up.
        if let Ok(file) = self.file_mut(number) {
            file.sync_failed();
        }
    }

    /// The power goes: what is there when it comes back.
    pub(crate) fn cut(&mut self, survives: Survives) -> Loss {
        let mut draw = Draw::new(survives);
        let mut loss = Loss::default();
        for inode in self.inodes.values_mut() {
            loss += match &mut inode.body {
                Body::File(file) => file.cut(&mut draw),
                Body::Directory(directory) => directory.cut(&mut draw),
                Body::Link(_) | Body::Special(_) => Loss::default(),
            };
            inode.lookups = 0;
        }
        let mut reached = BTreeSet::from([ROOT]);
        let mut open = vec![ROOT];
        while let Some(number) = open.pop() {
            let Ok(directory) = self.directory(number) else { continue };
            let found: Vec<u64> = directory.entries().map(|(_, inode)| inode).collect();
            open.extend(found.into_iter().filter(|inode| reached.insert(*inode)));
        }
        self.inodes.retain(|number, _| reached.contains(number));
        loss
    }

    fn needs_room(&self, number: u64, end: u64) -> Result<(), Errno> {
        let length = self.file(number)?.length();
        if end > FILE_BYTES_MAX {
            return Err(Errno::EFBIG);
        }
        match self.capacity {
            Some(capacity) if end > length && self.used() + (end - length) > capacity => {
                Err(Errno::ENOSPC)
            }
            _ => Ok(()),
        }
    }

    /// Drops an inode that no entry names, now or after a cut, and that no process has open.
    fn drop_if_unnamed(&mut self, number: u64) {
        let is_known = self.inodes.get(&number).is_some_and(|inode| inode.lookups > 0);
        let is_named = || {
            self.inodes.values().any(|inode| match &inode.body {
                Body::Directory(directory) => directory.named().any(|named| named == number),
                _ => false,
            })
        };
        if number != ROOT && !is_known && !is_named() {
            self.inodes.remove(&number);
        }
    }

    fn inode(&self, number: u64) -> Result<&Inode, Errno> {
        self.inodes.get(&number).ok_or(Errno::ENOENT)
    }

    fn inode_mut(&mut self, number: u64) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&number).ok_or(Errno::ENOENT)
    }

    fn file(&self, number: u64) -> Result<&FileData, Errno> {
        match &self.inode(number)?.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(Errno::EISDIR),
            Body::Link(_) | Body::Special(_) => Err(Errno::EINVAL),
        }
    }

    fn file_mut(&mut self, number: u64) -> Result<&mut FileData, Errno> {
        let inode = self.inode_mut(number)?;
        inode.changed = SystemTime::now();
        match &mut inode.body {
            Body::File(file) => Ok(file),
            Body::Directory(_) => Err(Errno::EISDIR),
            Body::Link(_) | Body::Special(_) => Err(Errno::EINVAL),
        }
    }

    fn directory(&self, number: u64) -> Result<&Directory, Errno> {
        match &self.inode(number)?.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn directory_mut(&mut self, number: u64) -> Result<&mut Directory, Errno> {
        let inode = self.inode_mut(number)?;
        inode.changed = SystemTime::now();
        match &mut inode.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }
}

impl Inode {
    fn new(what: What, maker: Maker) -> Self {
        let body = match what {
            What::File => Body::File(FileData::default()),
            What::Directory => Body::Directory(Directory::default()),
            What::Link(target) => Body::Link(target),
            What::Special(kind) => Body::Special(kind),
        };
        let Maker { uid, gid, mode } = maker;
        let changed = SystemTime::now();
        Self { body, mode: permissions(mode), uid, gid, changed, lookups: 0 }
    }

    fn kind(&self) -> FileType {
        match &self.body {
            Body::File(_) => FileType::RegularFile,
            Body::Directory(_) => FileType::Directory,
            Body::Link(_) => FileType::Symlink,
            Body::Special(kind) => *kind,
        }
    }

    fn size(&self) -> u64 {
        match &self.body {
            Body::File(file) => file.length(),
            Body::Link(target) => target.as_os_str().len() as u64,
            Body::Directory(_) | Body::Special(_) => 0,
        }
    }
}

fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or(0)
}
