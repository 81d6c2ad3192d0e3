//! Runs the target that `GINNEL_FUZZ_TARGET` names under libFuzzer; see `make fuzz`.

#![no_main]

use std::{env, panic, sync::LazyLock, thread};

use fuzz::{TARGETS, Target};

#[path = "mod.rs"]
mod fuzz;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    // libFuzzer's own hook ends the process, also where the library catches a panic of a parser.
    panic::set_hook(Box::new(|panic| {
        if thread::current().name() != Some("policy") {
            eprintln!("{panic}");
        }
    }));
    let name = env::var("GINNEL_FUZZ_TARGET").unwrap_or_default();
    let target = TARGETS.iter().find(|target| target.name == name);
    target.unwrap_or_else(|| {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("GINNEL_FUZZ_TARGET is {name:?}, and not one of {}", names.join(", "));
        std::process::exit(2)
    })
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.check)(data));
