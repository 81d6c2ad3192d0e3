//! The extension module `ginnel._native`: the only crate that knows Python.
//!
//! Python's classes are generated from the table of operations and are Python code
//! (`python/ginnel/remote/`); each of their methods is one line that names its operation. The
//! functions that they call are here, once for all operations:
//!
//! - `core.rs` takes an operation's name and arguments, blocking or asynchronous;
//! - `arguments.rs` makes JSON of Python values, `results/` makes Python objects of JSON;
//! - `event_loop.rs` drives the calls of an asyncio loop, `pending_call.rs` makes them awaitable;
//! - `exit.rs` keeps other threads out of an interpreter that ends;
//! - `policy.rs` checks and tries traffic policies;
//! - `capture.rs` reads captured bodies;
//! - `traffic.rs` passes on decisions on public traffic;
//! - `secrets.rs` tells which names are secret;
//! - `logging.rs` hands log records to Python's loggers;
//! - `observer.rs` tells Python's logger and hooks what happens to calls;
//! - `error.rs` makes Python's exceptions.
//!
//! # Versions
//!
//! pyo3-asyncio stopped at PyO3 0.20; its successor pyo3-async-runtimes wakes the loop once per call,
//! through a thread that holds the interpreter's lock. Calls that run on the loop's own thread, behind one
//! descriptor that it watches for all of them, need no other thread at all (`docs/benchmarks.md` has the
//! figures). So neither crate is used. pythonize makes Python objects of details of errors that `results/` refuses (`error.rs`), and
//! PyO3 0.29 is the newest that it shares; results are made by `results/`, since a tree of values between
//! text and objects has no room for integers of any size, and cannot be made in slices.

#![cfg(feature = "python")]

mod agent;
mod arguments;
mod capture;
mod cassette;
mod core;
mod error;
mod event_loop;
mod exit;
mod expected_result;
mod fault_injection;
mod logging;
mod observer;
mod options;
mod pending_call;
mod policy;
mod raw_response;
mod results;
mod secrets;
mod service;
mod shutdown;
mod table;
mod traffic;

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Only the first interpreter of a process may have this: its objects would be shared with others.
fn refuse_subinterpreters(py: Python<'_>) -> PyResult<()> {
    // SAFETY: the interpreter's lock is held, so that there is a current interpreter.
    let number = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    match number {
        0 => Ok(()),
        -1 => Err(PyErr::fetch(py)),
        _ => Err(PyImportError::new_err("ginnel does not support subinterpreters")),
    }
}

/// Module `_native`: the Rust part of the Python package.
#[pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use super::agent::PyAgent;
    #[pymodule_export]
    #[pymodule_export]
    use super::capture::{PyMaskedBody, PyMaskedPart, PyReadableBody, read_body};
    #[pymodule_export]
    use super::cassette::use_cassette;
    #[pymodule_export]
    use super::core::{Core, loopback_only};
    #[pymodule_export]
    use super::event_loop::LoopDriver;
    #[pymodule_export]
    use super::fault_injection::{FaultInjector, PySnapshot};
    #[pymodule_export]
    use super::logging::{log_targets, set_log_levels, take_log_records, wake_log_reader};
    #[pymodule_export]
    use super::pending_call::PendingCall;
    #[pymodule_export]
    use super::policy::{PySimulation, check_policy};
    #[pymodule_export]
    use super::results::{BodyDecoder, decode, parse, slots};
    #[pymodule_export]
    use super::secrets::{
        is_secret, is_secret_parameter, is_visible_list, mask_body, mask_call, mask_header,
        mask_parameters, mask_target, mask_text, secret_members,
    };
    #[pymodule_export]
    use super::service::{PyService, main, with_ascii_host};
    #[pymodule_export]
    use super::table::{operations, service_settings, shapes};
    #[pymodule_export]
    use super::traffic::TrafficEvents;

    #[pymodule_export]
    use super::exit::wait_for_calls;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Before the package opens a file, a socket or a runtime.
        ginnel_base::standard_streams::open_closed_streams();
        super::refuse_subinterpreters(module.py())?;
        let at_exit = module.py().import("atexit")?;
        at_exit.call_method1("register", (module.getattr("wait_for_calls")?,)).map(drop)
    }

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
