//! Starts the program as the very last one.
//!
//! A filter can only look at the numbers that a call is made with. So the arguments and the environment are put at two
//! addresses drawn at random, and the filter refuses every `execve` with other addresses. The program can't learn them:
//! its memory is a new one, and 2^60 guesses are too many.

use std::{
    ffi::{CString, OsString},
    io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    ptr,
};

/// Where the arguments and the environment of the only permitted call are.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExecPermit {
    pub(super) arguments: u64,
    pub(super) environment: u64,
}

/// A call that is ready to be made.
#[derive(Debug)]
pub(super) struct PreparedExec {
    program: CString,
    arguments: *const *const libc::c_char,
    environment: *const *const libc::c_char,
}

/// Addresses that user space has on every architecture, page by page.
const PAGE: usize = 4096;
const PAGES: u64 = 1 << 34;
const ATTEMPTS: usize = 64;

// === impl PreparedExec ===

impl PreparedExec {
    pub(super) fn prepare(program: OsString, arguments: Vec<OsString>) -> io::Result<Self> {
        let variables = std::env::vars_os().map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            name
        });
        Ok(Self {
            program: CString::new(program.as_bytes())?,
            arguments: place(arguments)?,
            environment: place(variables.collect())?,
        })
    }

    pub(super) fn permit(&self) -> ExecPermit {
        ExecPermit { arguments: self.arguments.addr() as u64, environment: self.environment.addr() as u64 }
    }

    /// Returns only if the program can't be started.
    #[allow(unsafe_code, reason = "execve with two arrays that were made for it and live until the process ends")]
    pub(super) fn call(&self) -> io::Error {
        // SAFETY: the program is a C string, and both arrays end with a null pointer and are never freed.
        unsafe { libc::execve(self.program.as_ptr(), self.arguments, self.environment) };
        io::Error::last_os_error()
    }
}

/// Puts an array of C strings at a random address. It stays there until the process becomes another program.
#[allow(unsafe_code, reason = "maps fresh memory and writes the array into it")]
fn place(words: Vec<OsString>) -> io::Result<*const *const libc::c_char> {
    let words = words.into_iter().map(|word| CString::new(word.into_vec()));
    let words: Vec<CString> = words.collect::<Result<_, _>>()?;
    let count = words.len() + 1;
    let bytes = count * size_of::<*const libc::c_char>();
    for _ in 0..ATTEMPTS {
        let drawn = getrandom::u64().map_err(io::Error::other)?;
        let page = usize::try_from(drawn % PAGES).map_err(io::Error::other)?;
        // Not at the beginning of the page, for more to guess.
        let offset = usize::try_from((drawn >> 40) % 512).map_err(io::Error::other)? * size_of::<usize>();
        let hint = ptr::without_provenance_mut((page + 16) * PAGE);
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE);
        // SAFETY: a new mapping that replaces none.
        let mapped = unsafe { libc::mmap(hint, bytes + offset, protection, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            continue;
        }
        // SAFETY: the mapping has room for the offset and the array, and nobody else knows it. The offset is a
        // multiple of the size of a pointer.
        let array = unsafe { mapped.byte_add(offset) }.cast::<*const libc::c_char>();
        for (index, word) in words.into_iter().enumerate() {
            // SAFETY: within the array. The strings are never freed.
            unsafe { array.add(index).write(word.into_raw()) };
        }
        // SAFETY: the last element of the array.
        unsafe { array.add(count - 1).write(ptr::null()) };
        return Ok(array);
    }
    Err(io::Error::other("no room for the arguments of the program"))
}
