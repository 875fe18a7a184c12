//! Which devices a container may open: those that every program may expect, and no other, made by
//! whomever. The older cgroup trees have a list for it; the unified one runs a small program for
//! each opening, which is written here.
#![expect(unsafe_code, reason = "bpf(2); each block says why it is sound")]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;

/// Character devices: null, zero, full, random, urandom, tty, ptmx; a terminal's other end has any
/// minor number.
const ALLOWED: [(u16, Option<u16>); 8] = [
    (1, Some(3)),
    (1, Some(5)),
    (1, Some(7)),
    (1, Some(8)),
    (1, Some(9)),
    (5, Some(0)),
    (5, Some(2)),
    (136, None),
];

/// On the older tree: nothing, then the list.
pub(super) fn allow_in_list(folder: &Path) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("limit devices: {error}"));
    std::fs::write(folder.join("devices.deny"), "a").map_err(named)?;
    // The kernel takes one rule with each write.
    let mut list = File::options().write(true).open(folder.join("devices.allow")).map_err(named)?;
    for (major, minor) in ALLOWED {
        let minor = minor.map_or_else(|| "*".to_owned(), |it| it.to_string());
        list.write_all(format!("c {major}:{minor} rwm").as_bytes()).map_err(named)?;
    }
    Ok(())
}

/// One instruction of the kernel's virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// The register written to in the low half, the one read from in the high half.
    registers: u8,
    offset: i16,
    value: i32,
}

/// Reads one of the three words that the kernel tells: access and type, major, minor. They are
/// behind register 1.
const fn load(register: u8, word: i16) -> Instruction {
    Instruction { code: 0x61, registers: 0x10 | register, offset: word * 4, value: 0 }
}

/// Passes over so many instructions unless the register has this value.
const fn skip_unless(register: u8, value: i32, skipped: i16) -> Instruction {
    Instruction { code: 0x55, registers: register, offset: skipped, value }
}

const fn answer(allowed: i32) -> [Instruction; 2] {
    [
        Instruction { code: 0xb7, registers: 0, offset: 0, value: allowed },
        Instruction { code: 0x95, registers: 0, offset: 0, value: 0 },
    ]
}

/// Allows what is in the list and refuses the rest, block devices above all.
fn program() -> Vec<Instruction> {
    const CHARACTER: i32 = 2;
    let mut list = Vec::new();
    for (major, minor) in ALLOWED {
        match minor {
            Some(minor) => list
                .extend([skip_unless(3, i32::from(major), 3), skip_unless(4, i32::from(minor), 2)]),
            None => list.push(skip_unless(3, i32::from(major), 2)),
        }
        list.extend(answer(1));
    }
    let past_the_list = i16::try_from(list.len()).expect("the list is short");
    let mut program = vec![
        load(2, 0),
        // The type is in the low half of its word.
        Instruction { code: 0x54, registers: 2, offset: 0, value: 0xffff },
        load(3, 1),
        load(4, 2),
        skip_unless(2, CHARACTER, past_the_list),
    ];
    program.append(&mut list);
    program.extend(answer(0));
    program
}

/// On the unified tree: has the kernel ask the program. It goes with the folder.
pub(super) fn allow_by_program(folder: &Path) -> io::Result<()> {
    const LOAD: i32 = 5;
    const ATTACH: i32 = 8;
    const CGROUP_DEVICE: u32 = 15;
    const AT_DEVICE: u32 = 6;
    const BESIDE_OTHERS: u32 = 2;
    /// What the kernel needs to know of a program.
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        nothing: [u64; 3],
    }
    let named = |error: io::Error| io::Error::new(error.kind(), format!("limit devices: {error}"));
    let folder = File::open(folder).map_err(named)?;
    let program = program();
    let load = Load {
        kind: CGROUP_DEVICE,
        count: u32::try_from(program.len()).expect("the program is short"),
        instructions: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        nothing: [0; 3],
    };
    // SAFETY: the structure has the size that is named, and lives through the call with what it
    // points to.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, LOAD, &raw const load, size_of_val(&load)) };
    if fd < 0 {
        return Err(named(io::Error::last_os_error()));
    }
    // SAFETY: the kernel has just opened it for us.
    let loaded = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap_or(-1)) };
    let [at, what] = [folder.as_raw_fd(), loaded.as_raw_fd()].map(i32::cast_unsigned);
    let attach = [at, what, AT_DEVICE, BESIDE_OTHERS];
    // SAFETY: the array has the size that is named and lives through the call.
    let done =
        unsafe { libc::syscall(libc::SYS_bpf, ATTACH, &raw const attach, size_of_val(&attach)) };
    if done < 0 { Err(named(io::Error::last_os_error())) } else { Ok(()) }
}
