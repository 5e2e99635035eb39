//! The kernel's calls, carried out on the disk.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::disk::{Attributes, Disk, Maker, What};
use crate::disk_state::DiskState;
use crate::fault::Call;

/// How long the kernel may cache an answer: every change passes through the kernel.
const TRUSTED: Duration = Duration::from_secs(60);

/// What `fallocate` says when the file is not to grow: `FALLOC_FL_KEEP_SIZE` of fallocate(2).
const KEEP_SIZE: i32 = 1;

/// The kind of file in a mode: `S_IFMT` and its values of inode(7).
const KIND_MASK: u32 = 0o170_000;
const KIND_FIFO: u32 = 0o010_000;
const KIND_REGULAR: u32 = 0o100_000;
const KIND_SOCKET: u32 = 0o140_000;

/// The size of a block in what `statfs` says.
const BLOCK_BYTES: u64 = 4096;

/// What `statfs` says is free when there is no bound.
const FREE_BYTES: u64 = 1 << 40;

/// `FOPEN_NOFLUSH` of linux/fuse.h: closing a file sends no request. A process that calls exec
/// closes its files under a lock that readers of its `/proc/PID/stat` wait for, so on a frozen disk a
/// request at close would stop every reader of `/proc` on the machine.
const NO_FLUSH: FopenFlags = FopenFlags::from_bits_retain(1 << 5);

/// Entries of a directory, as they were when it was opened.
type Listing = Vec<(u64, FileType, OsString)>;

/// Serves one mount.
pub(crate) struct Calls {
    shared: Arc<DiskState>,
    listings: Mutex<BTreeMap<u64, Listing>>,
}

impl Calls {
    pub(crate) fn new(shared: Arc<DiskState>) -> Self {
        Self { shared, listings: Mutex::default() }
    }

    fn on<T>(
        &self,
        call: Call,
        act: impl FnOnce(&mut Disk) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.shared.on(call, act)
    }

    fn sync(&self, inode: INodeNo, reply: ReplyEmpty) {
        let done = self.shared.sync(inode.0);
        empty(reply, done);
    }
}

fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn entry(reply: ReplyEntry, found: Result<FileAttr, Errno>) {
    match found {
        Ok(attributes) => reply.entry(&TRUSTED, &attributes, Generation(0)),
        Err(errno) => reply.error(errno),
    }
}

fn attributes(reply: ReplyAttr, found: Result<FileAttr, Errno>) {
    match found {
        Ok(attributes) => reply.attr(&TRUSTED, &attributes),
        Err(errno) => reply.error(errno),
    }
}

fn maker(request: &Request, mode: u32, umask: u32) -> Maker {
    Maker { uid: request.uid(), gid: request.gid(), mode: mode & !umask }
}

impl Filesystem for Calls {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(reply, self.on(Call::Look, |disk| disk.lookup(parent.0, name)));
    }

    fn forget(&self, _: &Request, inode: INodeNo, count: u64) {
        self.shared.forget(inode.0, count);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attributes(reply, self.on(Call::Look, |disk| disk.attributes(inode.0)));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wanted = Attributes { mode, uid, gid, size };
        attributes(reply, self.on(Call::Change, |disk| disk.set_attributes(inode.0, wanted)));
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        use std::os::unix::ffi::OsStrExt;
        let found = self.on(Call::Look, |disk| Ok(disk.target(inode.0)?.to_owned()));
        match found {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let what = match mode & KIND_MASK {
            KIND_REGULAR | 0 => What::File,
            KIND_FIFO => What::Special(FileType::NamedPipe),
            KIND_SOCKET => What::Special(FileType::Socket),
            _ => return reply.error(Errno::EPERM),
        };
        let maker = maker(request, mode, umask);
        entry(reply, self.on(Call::Fill, |disk| disk.make(parent.0, name, what, maker)));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let maker = maker(request, mode, umask);
        entry(reply, self.on(Call::Fill, |disk| disk.make(parent.0, name, What::Directory, maker)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.on(Call::Change, |disk| disk.remove(parent.0, name, false)));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.on(Call::Change, |disk| disk.remove(parent.0, name, true)));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let what = What::Link(target.to_owned());
        let maker = maker(request, 0o777, 0);
        entry(reply, self.on(Call::Fill, |disk| disk.make(parent.0, name, what, maker)));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if flags.intersects(RenameFlags::RENAME_EXCHANGE | RenameFlags::RENAME_WHITEOUT) {
            return reply.error(Errno::EINVAL);
        }
        let replace = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        let (from, to) = ((parent.0, name), (new_parent.0, new_name));
        empty(reply, self.on(Call::Change, |disk| disk.rename(from, to, replace)));
    }

    fn link(
        &self,
        _: &Request,
        inode: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        entry(reply, self.on(Call::Fill, |disk| disk.link(inode.0, new_parent.0, new_name)));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let maker = maker(request, mode, umask);
        match self.on(Call::Fill, |disk| disk.make(parent.0, name, What::File, maker)) {
            Ok(attributes) => {
                reply.created(&TRUSTED, &attributes, Generation(0), FileHandle(0), NO_FLUSH);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), NO_FLUSH);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.on(Call::Look, |disk| Ok(disk.read(inode.0, offset, size)?.to_vec())) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.on(Call::Fill, |disk| disk.write(inode.0, offset, data)) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(errno),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let end = offset.saturating_add(length);
        match mode {
            0 => empty(reply, self.on(Call::Fill, |disk| disk.grow(inode.0, end))),
            // Room is not set aside beyond the end of a file: a later write may find none.
            KEEP_SIZE => empty(reply, self.on(Call::Look, |_| Ok(()))),
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(inode, reply);
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(inode, reply);
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.on(Call::Look, |disk| disk.list(inode.0)) {
            Ok(found) => {
                let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
                let handle = listings.last_key_value().map_or(1, |(last, _)| last + 1);
                let dots = [".", ".."].map(|dot| (inode.0, FileType::Directory, dot.into()));
                listings.insert(handle, dots.into_iter().chain(found).collect());
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let listing = listings.get(&handle.0).map(Vec::as_slice).unwrap_or_default();
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        for (place, (inode, kind, name)) in listing.iter().enumerate().skip(skipped) {
            if reply.add(INodeNo(*inode), place as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (used, capacity) = self.shared.room();
        let free = capacity.map_or(FREE_BYTES, |capacity| capacity.saturating_sub(used));
        let (blocks, free) = ((used + free) / BLOCK_BYTES, free / BLOCK_BYTES);
        let block = u32::try_from(BLOCK_BYTES).unwrap_or(u32::MAX);
        reply.statfs(blocks, free, free, 1 << 20, 1 << 20, block, 255, block);
    }
}
