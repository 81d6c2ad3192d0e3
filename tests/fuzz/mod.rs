//! Fuzz targets: one function for each format that the project reads.
//!
//! A target takes any bytes and checks properties that hold for all of them: a reader gives the same
//! result however its input is cut, what is written again reads the same, and what another reader
//! refuses is not accepted. It panics where one is broken.
//!
//! `cargo test` runs each target with the files of `corpus/<target>/` and some mutations of them
//! ([`driver`]); `make fuzz` runs it under libFuzzer (`libfuzzer.rs`).

#[cfg(test)]
mod driver;
mod hyper_peer;
#[cfg(test)]
mod mutation;
mod pieces;
mod random;
#[cfg(test)]
mod readings;
mod targets;

/// A named target.
#[derive(Debug)]
pub struct Target {
    /// The name, which is that of its file and of the folder of its corpus.
    pub name: &'static str,
    /// Panics if a property does not hold for an input.
    pub check: fn(&[u8]),
}

macro_rules! targets {
    ($($name:ident),+ $(,)?) => {
        /// All targets.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), check: targets::$name::target }),+];

        #[cfg(test)]
        mod tests {
            $(
                #[test]
                fn $name() {
                    let mut targets = super::TARGETS.iter();
                    let target = targets.find(|target| target.name == stringify!($name)).unwrap();
                    super::driver::run(target.name, target.check);
                }
            )+
        }
    };
}

targets! {
    addresses,
    bodies,
    calls,
    configurations,
    expressions,
    frames,
    ids,
    json,
    lists,
    masks,
    media_types,
    paths,
    policies,
    raw_targets,
    requests,
    responses,
    secrets,
    visitors,
}
