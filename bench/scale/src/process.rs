//! What the system says of a process, and what this one may do.

use std::os::fd::RawFd;
use std::time::Duration;

/// So many descriptors are for neither side of a measurement.
const SPARE_DESCRIPTORS: usize = 600;

/// The memory of a process that is not that of files, in bytes.
pub fn memory(process: u32) -> f64 {
    let status = read(process, "status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: f64 = line.and_then(|it| it.trim().strip_suffix(" kB")?.parse().ok()).expect("a size");
    kib * 1024.0
}

/// The processor time that a process has used.
pub fn processor_time(process: u32) -> Duration {
    let stat = read(process, "stat");
    // The name of the program may contain spaces; what follows it does not.
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().expect("ticks")).sum();
    // SAFETY: sysconf only looks up a number.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Duration::from_secs_f64(ticks as f64 / per_second as f64)
}

/// Raises the limit of descriptors of this process and its children, as far as the system lets it.
pub fn raise_descriptors() {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls use the struct that they are given, and nothing else.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits), 0);
        let wanted = limits.rlim_max.max(64 * 1024);
        let raised = libc::rlimit { rlim_cur: wanted, rlim_max: wanted };
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) != 0 {
            let allowed = libc::rlimit { rlim_cur: limits.rlim_max, ..limits };
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const allowed), 0);
        }
    }
}

/// How many connections each process of a measurement may have.
pub fn most_connections() -> usize {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes to the struct that it is given, and to nothing else.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) }, 0);
    (limits.rlim_cur as usize).saturating_sub(SPARE_DESCRIPTORS)
}

/// The sockets of this process that are connected to a port.
pub fn sockets_to(port: u16) -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd").expect("a list of descriptors");
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(|socket| peer_port(*socket) == Some(port)).collect()
}

fn peer_port(socket: RawFd) -> Option<u16> {
    // SAFETY: zeroes are a valid address, and the call writes no more than the length says.
    unsafe {
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        let mut length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        let found = libc::getpeername(socket, (&raw mut address).cast(), &raw mut length);
        let is_ipv4 = address.sin_family == libc::AF_INET as libc::sa_family_t;
        (found == 0 && is_ipv4).then(|| u16::from_be(address.sin_port))
    }
}

/// Breaks a connection; whoever uses it finds it closed.
pub fn break_connection(socket: RawFd) {
    // SAFETY: the descriptor stays open; a socket that is closed already makes this an error.
    unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
}

/// Asks a process to end.
pub fn terminate(process: u32) {
    // SAFETY: the process is a child that has not been waited for, so the number is its own.
    unsafe { libc::kill(process as libc::pid_t, libc::SIGTERM) };
}

fn read(process: u32, name: &str) -> String {
    std::fs::read_to_string(format!("/proc/{process}/{name}")).expect("the process runs")
}
