//! Traffic policies checked and tried, as Python sees them.

use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};
use pyo3::prelude::*;

use ginnel_policy::trial::{self, Traffic};
use ginnel_policy::{Problem, Protocol};

use super::error;

/// What is wrong with a document: places, codes and messages.
#[pyfunction]
pub(super) fn check_policy(
    py: Python<'_>,
    document: &str,
    protocol: &str,
    edge: Option<bool>,
) -> PyResult<Vec<(String, u16, String)>> {
    let protocol = parse_protocol(py, protocol)?;
    let compiled = py.detach(|| trial::parse_policy(document, protocol, edge));
    Ok(compiled.err().map(problem_tuples).unwrap_or_default())
}

/// A policy that is tried with one message after the other.
#[pyclass(frozen, module = "ginnel._native", name = "Trial")]
pub(super) struct PySimulation(Mutex<trial::Trial>);

#[pymethods]
impl PySimulation {
    /// Compiles a document that was checked; `begin` is RFC 3339.
    #[new]
    fn new(
        py: Python<'_>,
        document: &str,
        protocol: &str,
        edge: Option<bool>,
        begin: Option<&str>,
    ) -> PyResult<Self> {
        let protocol = parse_protocol(py, protocol)?;
        let begin = begin.map(|begin| begin.parse::<DateTime<Utc>>()).transpose();
        let begin = begin.map_err(|problem| {
            error::new_exception(py, "ValidationError", &format!("begin: {problem}"))
        })?;
        let trial = py.detach(|| trial::Trial::parse(document, protocol, edge, begin));
        let trial = trial.map_err(|found| {
            let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
            error::new_exception(py, "ValidationError", &texts.join("; "))
        })?;
        Ok(Self(Mutex::new(trial)))
    }

    /// Takes a message through the policy; both it and the report are JSON.
    fn run(&self, py: Python<'_>, traffic: &str) -> PyResult<String> {
        let invalid = |problem: &dyn std::fmt::Display| {
            error::new_exception(py, "ValidationError", &problem.to_string())
        };
        let traffic: Traffic =
            serde_json::from_str(traffic).map_err(|problem| invalid(&problem))?;
        let report = py.detach(|| {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).simulate_traffic(&traffic)
        });
        let report = report.map_err(|problem| invalid(&problem))?;
        serde_json::to_string(&report).map_err(|problem| invalid(&problem))
    }
}

fn parse_protocol(py: Python<'_>, protocol: &str) -> PyResult<Protocol> {
    protocol.parse().map_err(|()| {
        let message = format!("protocol is {protocol:?}, not http, https, tcp or tls");
        error::new_exception(py, "ValidationError", &message)
    })
}

fn problem_tuples(found: Vec<Problem>) -> Vec<(String, u16, String)> {
    found.into_iter().map(|problem| (problem.place, problem.code, problem.message)).collect()
}
