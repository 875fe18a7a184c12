//! SQLite on a [`Platter`]: the file system that it calls. One for all disks of the process; the first
//! part of a path tells which. A disk and whoever uses it stay on one thread.
#![expect(
    unsafe_code,
    reason = "SQLite is written in C: it calls functions and hands out pointers"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::size_of;
use std::ptr;
use std::rc::Rc;
use std::sync::Once;

use rusqlite::ffi;

use super::platter::{Fault, Platter};

/// How SQLite knows it.
pub(super) const NAME: &str = "volvox-platter";
const C_NAME: &CStr = c"volvox-platter";
const REGION: usize = 32_768;
const SLOTS: usize = ffi::SQLITE_SHM_NLOCK as usize;

thread_local! {
    static DISKS: RefCell<BTreeMap<String, Rc<RefCell<Platter>>>> = const { RefCell::new(BTreeMap::new()) };
    static SHARED: RefCell<BTreeMap<(String, u32), Rc<Shared>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Lets SQLite find a disk by the first part of a path.
pub(super) fn mount(name: &str, platter: Rc<RefCell<Platter>>) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(register);
    DISKS.with_borrow_mut(|disks| disks.insert(name.to_owned(), platter));
}

/// Forgets a disk.
pub(super) fn unmount(name: &str) {
    DISKS.with_borrow_mut(|disks| disks.remove(name));
}

/// What the connections of one process to one file share: locks, and the index of the log.
#[derive(Default)]
struct Shared {
    levels: RefCell<BTreeMap<usize, c_int>>,
    next: RefCell<usize>,
    // SQLite keeps the addresses, and nobody else reads or writes there.
    regions: RefCell<Vec<*mut [u8; REGION]>>,
    slots: RefCell<[Slot; SLOTS]>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        for region in self.regions.take() {
            // SAFETY: `shm_map` has made it by a box, and no file is open that has its address.
            drop(unsafe { Box::from_raw(region) });
        }
    }
}

#[derive(Default)]
struct Slot {
    shared: Vec<usize>,
    exclusive: Option<usize>,
}

/// An open file.
struct Handle {
    platter: Rc<RefCell<Platter>>,
    name: String,
    life: u32,
    id: usize,
    shared: Rc<Shared>,
}

/// What SQLite has of it.
#[repr(C)]
struct OpenFile {
    base: ffi::sqlite3_file,
    handle: *mut Handle,
}

impl Handle {
    /// Does something to the file; gives what SQLite calls the outcome.
    fn with(
        &self,
        failing: c_int,
        act: impl FnOnce(&mut Platter) -> Result<c_int, Fault>,
    ) -> c_int {
        let Ok(mut platter) = self.platter.try_borrow_mut() else { return ffi::SQLITE_INTERNAL };
        match act(&mut platter) {
            Ok(code) => code,
            Err(Fault::Full) => ffi::SQLITE_FULL,
            Err(Fault::Broken | Fault::Dead | Fault::Missing) => failing,
        }
    }

    fn is_alive(&self) -> bool {
        self.platter.try_borrow().is_ok_and(|it| it.life() == self.life)
    }

    /// The highest level that another connection has.
    fn others(&self) -> c_int {
        let levels = self.shared.levels.borrow();
        let others = levels.iter().filter(|(id, _)| **id != self.id);
        others.map(|(_, level)| *level).max().unwrap_or(ffi::SQLITE_LOCK_NONE)
    }
}

/// The disk of a path, and the file's name on it.
fn find(path: *const c_char) -> Option<(Rc<RefCell<Platter>>, String, String)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: SQLite hands over a text that ends with a zero and outlives the call.
    let path = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
    let (disk, name) = path.strip_prefix('/')?.split_once('/')?;
    let platter = DISKS.with_borrow(|disks| disks.get(disk).cloned())?;
    Some((platter, name.to_owned(), path.to_owned()))
}

/// The handle of a file that is open.
///
/// # Safety
/// SQLite hands over only what `open` has filled and `close` has not had.
unsafe fn handle<'a>(file: *mut ffi::sqlite3_file) -> &'a Handle {
    // SAFETY: as above; nobody has it by a mutable reference.
    unsafe { &*(*file.cast::<OpenFile>()).handle }
}

extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    path: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let file = file.cast::<OpenFile>();
    // SAFETY: SQLite gives `szOsFile` bytes for this.
    unsafe { (*file).base.pMethods = ptr::null() };
    let Some((platter, name, path)) = find(path) else { return ffi::SQLITE_CANTOPEN };
    let life = {
        let Ok(mut platter) = platter.try_borrow_mut() else { return ffi::SQLITE_INTERNAL };
        if platter.size(&name).is_none() {
            if flags & ffi::SQLITE_OPEN_CREATE == 0 {
                return ffi::SQLITE_CANTOPEN;
            }
            platter.make(&name);
        }
        platter.life()
    };
    let shared = SHARED.with_borrow_mut(|all| {
        // Those that nobody has open: the index of a log is made anew from the log.
        all.retain(|_, it| Rc::strong_count(it) > 1);
        Rc::clone(all.entry((path.clone(), life)).or_default())
    });
    let id = {
        let mut next = shared.next.borrow_mut();
        *next += 1;
        *next
    };
    let handle = Box::new(Handle { platter, name, life, id, shared });
    // SAFETY: as above; `out_flags` is null or may be written.
    unsafe {
        (*file).handle = Box::into_raw(handle);
        (*file).base.pMethods = &raw const METHODS;
        if !out_flags.is_null() {
            *out_flags = flags;
        }
    }
    ffi::SQLITE_OK
}

extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `open` has made it, and SQLite closes once.
    let handle = unsafe { Box::from_raw((*file.cast::<OpenFile>()).handle) };
    handle.shared.levels.borrow_mut().remove(&handle.id);
    ffi::SQLITE_OK
}

extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    data: *mut c_void,
    count: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: an open file, and a place for so many bytes.
    let (handle, data) = unsafe {
        (handle(file), std::slice::from_raw_parts_mut(data.cast::<u8>(), usize_of(count.into())))
    };
    handle.with(ffi::SQLITE_IOERR_READ, |platter| {
        let found = platter.read(handle.life, &handle.name, usize_of(at), data)?;
        Ok(if found == data.len() { ffi::SQLITE_OK } else { ffi::SQLITE_IOERR_SHORT_READ })
    })
}

extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    data: *const c_void,
    count: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: an open file, and so many bytes.
    let (handle, data) = unsafe {
        (handle(file), std::slice::from_raw_parts(data.cast::<u8>(), usize_of(count.into())))
    };
    handle.with(ffi::SQLITE_IOERR_WRITE, |platter| {
        platter.write(handle.life, &handle.name, usize_of(at), data).map(|()| ffi::SQLITE_OK)
    })
}

extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: ffi::sqlite3_int64) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    handle.with(ffi::SQLITE_IOERR_TRUNCATE, |platter| {
        platter.cut(handle.life, &handle.name, usize_of(length)).map(|()| ffi::SQLITE_OK)
    })
}

extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    handle.with(ffi::SQLITE_IOERR_FSYNC, |platter| {
        platter.sync(handle.life, &handle.name).map(|()| ffi::SQLITE_OK)
    })
}

extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    handle.with(ffi::SQLITE_IOERR_FSTAT, |platter| {
        let found = platter.size(&handle.name).ok_or(Fault::Missing)?;
        // SAFETY: a place for one number.
        unsafe { *size = i64::try_from(found).unwrap_or(i64::MAX) };
        Ok(ffi::SQLITE_OK)
    })
}

extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    if !handle.is_alive() {
        return ffi::SQLITE_IOERR_LOCK;
    }
    let others = handle.others();
    let is_free = match level {
        ffi::SQLITE_LOCK_SHARED => others < ffi::SQLITE_LOCK_PENDING,
        ffi::SQLITE_LOCK_RESERVED => others < ffi::SQLITE_LOCK_RESERVED,
        _ => others < ffi::SQLITE_LOCK_SHARED,
    };
    if !is_free {
        return ffi::SQLITE_BUSY;
    }
    let mut levels = handle.shared.levels.borrow_mut();
    let mine = levels.entry(handle.id).or_default();
    *mine = level.max(*mine);
    ffi::SQLITE_OK
}

extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    handle.shared.levels.borrow_mut().insert(handle.id, level);
    ffi::SQLITE_OK
}

extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, is: *mut c_int) -> c_int {
    // SAFETY: an open file, and a place for one number.
    unsafe { *is = c_int::from(handle(file).others() >= ffi::SQLITE_LOCK_RESERVED) };
    ffi::SQLITE_OK
}

extern "C" fn file_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    4_096
}

/// As SQLite takes the files of a machine to be.
extern "C" fn device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    nth: c_int,
    size: c_int,
    extend: c_int,
    place: *mut *mut c_void,
) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    if !handle.is_alive() || usize_of(size.into()) != REGION {
        return ffi::SQLITE_IOERR_SHMMAP;
    }
    let mut regions = handle.shared.regions.borrow_mut();
    let nth = usize_of(nth.into());
    while extend != 0 && regions.len() <= nth {
        regions.push(Box::into_raw(Box::new([0; REGION])));
    }
    let region = regions.get(nth).map_or(ptr::null_mut(), |it| it.cast());
    // SAFETY: a place for one pointer. What it points to stays while a handle is open.
    unsafe { *place = region };
    ffi::SQLITE_OK
}

extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    if !handle.is_alive() {
        return ffi::SQLITE_IOERR_SHMLOCK;
    }
    let mut slots = handle.shared.slots.borrow_mut();
    let (from, count) = (usize_of(offset.into()), usize_of(count.into()));
    let Some(slots) = slots.get_mut(from..from + count) else { return ffi::SQLITE_IOERR_SHMLOCK };
    let is_shared = flags & ffi::SQLITE_SHM_SHARED != 0;
    let me = handle.id;
    if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
        for slot in slots {
            slot.shared.retain(|it| *it != me);
            slot.exclusive = slot.exclusive.filter(|it| *it != me);
        }
        return ffi::SQLITE_OK;
    }
    let is_free = |slot: &Slot| {
        slot.exclusive.is_none_or(|it| it == me)
            && (is_shared || slot.shared.iter().all(|it| *it == me))
    };
    if !slots.iter().all(is_free) {
        return ffi::SQLITE_BUSY;
    }
    for slot in slots {
        match is_shared {
            true => slot.shared.push(me),
            false => slot.exclusive = Some(me),
        }
    }
    ffi::SQLITE_OK
}

extern "C" fn shm_barrier(_: *mut ffi::sqlite3_file) {}

extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: an open file.
    let handle = unsafe { handle(file) };
    for slot in handle.shared.slots.borrow_mut().iter_mut() {
        slot.shared.retain(|it| *it != handle.id);
        slot.exclusive = slot.exclusive.filter(|it| *it != handle.id);
    }
    ffi::SQLITE_OK
}

extern "C" fn delete(_: *mut ffi::sqlite3_vfs, path: *const c_char, _: c_int) -> c_int {
    let Some((platter, name, _)) = find(path) else { return ffi::SQLITE_IOERR_DELETE };
    let Ok(mut platter) = platter.try_borrow_mut() else { return ffi::SQLITE_INTERNAL };
    match platter.remove(&name) {
        Ok(()) => ffi::SQLITE_OK,
        Err(_) => ffi::SQLITE_IOERR_DELETE_NOENT,
    }
}

/// As SQLite asks a machine: a file without a byte is none.
extern "C" fn access(
    _: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    _: c_int,
    is: *mut c_int,
) -> c_int {
    let found = find(path).and_then(|(platter, name, _)| platter.try_borrow().ok()?.size(&name));
    // SAFETY: a place for one number.
    unsafe { *is = c_int::from(found.is_some_and(|size| size > 0)) };
    ffi::SQLITE_OK
}

extern "C" fn full_pathname(
    _: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    size: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: a text that ends with a zero, and a place of that size.
    unsafe {
        let bytes = CStr::from_ptr(path).to_bytes_with_nul();
        if bytes.len() > usize_of(size.into()) {
            return ffi::SQLITE_CANTOPEN;
        }
        ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast::<u8>(), bytes.len());
    }
    ffi::SQLITE_OK
}

/// Not asked: SQLite takes its own randomness from the machine's file system.
extern "C" fn randomness(_: *mut ffi::sqlite3_vfs, count: c_int, out: *mut c_char) -> c_int {
    // SAFETY: a place for so many bytes.
    unsafe { ptr::write_bytes(out, 7, usize_of(count.into())) };
    count
}

extern "C" fn wait(_: *mut ffi::sqlite3_vfs, micros: c_int) -> c_int {
    micros
}

extern "C" fn current_time(_: *mut ffi::sqlite3_vfs, days: *mut f64) -> c_int {
    // SAFETY: a place for one number.
    unsafe { *days = 2_461_000.5 };
    ffi::SQLITE_OK
}

fn usize_of(number: i64) -> usize {
    usize::try_from(number).unwrap_or_default()
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

fn register() {
    let vfs = Box::new(ffi::sqlite3_vfs {
        iVersion: 1,
        szOsFile: c_int::try_from(size_of::<OpenFile>()).unwrap_or(c_int::MAX),
        mxPathname: 512,
        pNext: ptr::null_mut(),
        zName: C_NAME.as_ptr(),
        pAppData: ptr::null_mut(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(wait),
        xCurrentTime: Some(current_time),
        xGetLastError: None,
        xCurrentTimeInt64: None,
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    });
    // SAFETY: it lives as long as the process, and is not changed by us.
    let code = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(vfs), 0) };
    assert_eq!(code, ffi::SQLITE_OK, "SQLite takes the file system");
}
