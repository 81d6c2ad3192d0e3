//! Standard streams that are never another file.

/// Opens `/dev/null` for each standard stream that is closed.
///
/// Otherwise, the next file or socket would get the number of the stream, and printed text would go there. Programs in
/// Rust do the same before `main`; a library in Python has to do it itself.
#[cfg(unix)]
pub fn open_closed_streams() {
    for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: this only reads the flags of a descriptor, which need not be open.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } != -1 {
            continue;
        }
        // SAFETY: the path ends with a zero byte.
        let opened = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
        // Another thread may have taken the number of the stream meanwhile.
        if opened > libc::STDERR_FILENO {
            // SAFETY: this function has opened the descriptor and is its only owner.
            unsafe { libc::close(opened) };
        }
    }
}

/// Does nothing: standard handles are not numbered like files here.
#[cfg(not(unix))]
pub fn open_closed_streams() {}
