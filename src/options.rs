//! The options of the clients: what Python passes, as `client::ClientOptions`.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};

use ginnel_api::{Secret, mask};
use ginnel_client::{Api, ClientCert, ClientOptions, ConfigError, OptionChanges};

use super::error;

/// The hooks, as the tuple `hooks` holds them.
const HOOKS: [&str; 3] = ["on_request", "on_response", "on_retry"];
/// How much of a value an error shows.
const MAX_SHOWN_CHARS: usize = 80;
/// How many items of a list an error shows.
const MAX_SHOWN_ITEMS: usize = 3;

const STR: &str = "must be a str";
const BOOL: &str = "must be True or False";
const PATH: &str = "must be the path of a file";
const SECONDS: &str = "must be a number of seconds";
const COUNT: &str = "must be a whole number";
const HEADERS: &str = "must be a mapping of str to str";
const QUERY: &str = "must be a mapping of names to values";
const NAMES: &str = "must have names that are a str, not empty, without half of a surrogate pair";
const PARAMETER: &str = "must be a str, int, float or bool, or a list of them";
const CLIENT_CERT: &str = "must be the path of a PEM file, or a pair of them, (certificate, key)";

/// Reads the options of a client, and checks its hooks.
pub(super) fn read_options(options: &Bound<'_, PyDict>) -> PyResult<ClientOptions> {
    let values = OptionValues(options);
    values.check_hooks()?;
    Ok(ClientOptions {
        api: if values.flag("agent", false)? { Api::Agent } else { Api::Remote },
        api_key: values.secret("api_key")?.map(Secret),
        base_url: values.text("base_url")?,
        timeout: values.seconds("timeout")?,
        deadline: values.seconds("deadline")?,
        max_retries: values.count("max_retries", 0)?,
        service_version: values.text("service_version")?,
        headers: values.headers("headers")?,
        ca_bundle: values.path("ca_bundle")?,
        client_cert: values.client_cert("client_cert")?,
        proxy: values.text("proxy")?,
        ignore_environment: !values.flag("trust_env", true)?,
        allow_http: values.flag("allow_http", false)?,
        app: values.text("app")?,
        max_connections: values.count("max_connections", 1)?.map(|count| count as usize),
        rate_limit: values.text("rate_limit")?,
    })
}

/// Options that a client changes for some of its calls, in the order of `with_options`.
pub(super) type ClientChanges<'py> = (
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
);

/// Reads the changes of options.
pub(super) fn read_changes(changed: &ClientChanges<'_>) -> PyResult<OptionChanges> {
    let (timeout, deadline, max_retries, headers, service_version, query) = changed;
    Ok(OptionChanges {
        timeout: read_if(timeout, |value| read_seconds("timeout", value))?,
        deadline: read_if(deadline, |value| read_seconds("deadline", value))?,
        max_retries: read_if(max_retries, |value| read_count("max_retries", value, 0))?,
        headers: read_if(headers, |value| read_headers("headers", value))?,
        service_version: read_if(service_version, |value| read_text("service_version", value))?,
        query: read_if(query, |value| read_parameters("extra_query", value))?,
    })
}

fn read_if<'py, T>(
    value: &Option<Bound<'py, PyAny>>,
    read: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Option<T>> {
    value.as_ref().map(read).transpose()
}

/// The options by their names; `None` is none.
struct OptionValues<'a, 'py>(&'a Bound<'py, PyDict>);

impl<'py> OptionValues<'_, 'py> {
    fn value(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.0.get_item(name)?.filter(|value| !value.is_none()))
    }

    fn text(&self, name: &'static str) -> PyResult<Option<String>> {
        read_if(&self.value(name)?, |value| read_text(name, value))
    }

    /// A text that no error shows, whatever it is.
    fn secret(&self, name: &'static str) -> PyResult<Option<String>> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        value.extract().map(Some).map_err(|_| {
            let problem = format!("{STR}, not {}", class_name(&value));
            error::config_error(value.py(), &ConfigError::new(name, problem))
        })
    }

    fn flag(&self, name: &'static str, default: bool) -> PyResult<bool> {
        let Some(value) = self.value(name)? else { return Ok(default) };
        value.extract().map_err(|_| wrong_type(name, &value, BOOL))
    }

    fn path(&self, name: &'static str) -> PyResult<Option<PathBuf>> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        value.extract().map(Some).map_err(|_| wrong_type(name, &value, PATH))
    }

    fn seconds(&self, name: &'static str) -> PyResult<Option<Duration>> {
        read_if(&self.value(name)?, |value| read_seconds(name, value))
    }

    fn count(&self, name: &'static str, least: u32) -> PyResult<Option<u32>> {
        read_if(&self.value(name)?, |value| read_count(name, value, least))
    }

    fn headers(&self, name: &'static str) -> PyResult<Vec<(String, String)>> {
        Ok(read_if(&self.value(name)?, |value| read_headers(name, value))?.unwrap_or_default())
    }

    fn client_cert(&self, name: &'static str) -> PyResult<Option<ClientCert>> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        if let Ok((chain, key)) = value.extract() {
            return Ok(Some(ClientCert { chain, key }));
        }
        let file = value.extract::<PathBuf>();
        file.map(|file| Some(file.into())).map_err(|_| wrong_type(name, &value, CLIENT_CERT))
    }

    fn check_hooks(&self) -> PyResult<()> {
        let Some(hooks) = self.value("hooks")? else { return Ok(()) };
        for (name, hook) in HOOKS.into_iter().zip(hooks.try_iter()?) {
            let hook = hook?;
            if !hook.is_none() && !hook.is_callable() {
                return Err(wrong_type(name, &hook, "must be callable"));
            }
        }
        Ok(())
    }
}

fn read_text(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.extract().map_err(|_| wrong_type(name, value, STR))
}

/// A time; what is longer than a duration can be is for ever, and so is zero.
fn read_seconds(name: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    if value.is_instance_of::<PyBool>() {
        return Err(wrong_type(name, value, SECONDS));
    }
    let seconds = match value.extract::<f64>() {
        Ok(seconds) => seconds,
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
            if value.lt(0)? {
                -1.0
            } else {
                f64::INFINITY
            }
        }
        Err(_) => return Err(wrong_type(name, value, SECONDS)),
    };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(wrong_value(name, value, "must be 0 or more seconds; 0 is no limit"));
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// A number; what is larger than a number of ours is as good as the largest.
fn read_count(name: &'static str, value: &Bound<'_, PyAny>, least: u32) -> PyResult<u32> {
    let too_small = || wrong_value(name, value, &format!("must be {least} or more"));
    if value.is_instance_of::<PyBool>() {
        return Err(wrong_type(name, value, COUNT));
    }
    match value.extract() {
        Ok(count) if count < least => Err(too_small()),
        Ok(count) => Ok(count),
        Err(error) if !error.is_instance_of::<PyOverflowError>(value.py()) => {
            Err(wrong_type(name, value, COUNT))
        }
        Err(_) if value.lt(0)? => Err(too_small()),
        Err(_) => Ok(u32::MAX),
    }
}

fn read_headers(option: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let headers = value.cast::<PyDict>().map_err(|_| wrong_type(option, value, HEADERS))?;
    headers.iter().map(|(key, text)| read_header(option, &key, &text)).collect()
}

/// Parameters of a query. A list is a parameter that is there several times; None is none.
fn read_parameters(
    option: &'static str,
    value: &Bound<'_, PyAny>,
) -> PyResult<Vec<(String, String)>> {
    let mapping = value.cast::<PyMapping>().map_err(|_| wrong_type(option, value, QUERY))?;
    let mut parameters = Vec::new();
    for pair in mapping.items()? {
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        let name = key.extract::<String>().ok().filter(|name| !name.is_empty());
        let wrong = || ConfigError::new(option, NAMES);
        let name = name.ok_or_else(|| error::config_error(key.py(), &wrong()))?;
        let values = match value.cast::<PyList>() {
            Ok(values) => values.iter().collect(),
            Err(_) => vec![value],
        };
        for value in values.iter().filter(|value| !value.is_none()) {
            parameters.push((name.clone(), read_parameter(option, &name, value)?));
        }
    }
    Ok(parameters)
}

/// The value of a parameter; it may be a secret.
fn read_parameter(option: &'static str, name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    let wrong = |problem: &str| {
        let problem = format!("{name:?} {problem}");
        error::config_error(value.py(), &ConfigError::new(option, problem))
    };
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(flag.is_true().to_string());
    }
    if value.is_instance_of::<PyFloat>() && !value.extract::<f64>()?.is_finite() {
        return Err(wrong("must be a finite number"));
    }
    if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
        return value.str()?.extract();
    }
    let Ok(text) = value.cast::<PyString>() else {
        return Err(wrong(&format!("{PARAMETER}, not {}", class_name(value))));
    };
    text.extract().map_err(|_| wrong("must not hold half of a surrogate pair"))
}

/// A header; its value may be a secret.
fn read_header(
    option: &'static str,
    name: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
) -> PyResult<(String, String)> {
    let wrong = |problem: String| {
        error::config_error(name.py(), &ConfigError::new(option, format!("{HEADERS}: {problem}")))
    };
    let known: String =
        name.extract().map_err(|_| wrong(format!("a name is not str but {}", class_name(name))))?;
    let text = value.extract();
    let text =
        text.map_err(|_| wrong(format!("{known:?} is not str but {}", class_name(value))))?;
    Ok((known, text))
}

fn wrong_type(option: &'static str, value: &Bound<'_, PyAny>, takes: &str) -> PyErr {
    wrong_value(option, value, &format!("{takes}, not {}", class_name(value)))
}

fn wrong_value(option: &'static str, value: &Bound<'_, PyAny>, problem: &str) -> PyErr {
    error::config_error(
        value.py(),
        &ConfigError::invalid_value(option, display_value(value), problem),
    )
}

/// The name of a value's class, for messages.
pub(super) fn class_name(value: &Bound<'_, PyAny>) -> String {
    // A class without a name is one all the same.
    value.get_type().name().map_or_else(|_| "this".to_owned(), |name| name.to_string())
}

/// A value on one short line, without what looks like a secret. Only of values of Python's own classes:
/// nobody knows what the others show.
fn display_value(value: &Bound<'_, PyAny>) -> String {
    if let Ok(list) = value.cast::<PyList>() {
        return format!("[{}]", display_items(list.iter()));
    }
    if let Ok(tuple) = value.cast::<PyTuple>() {
        return format!("({})", display_items(tuple.iter()));
    }
    display_scalar(value)
}

fn display_items<'py>(items: impl ExactSizeIterator<Item = Bound<'py, PyAny>>) -> String {
    let more = if items.len() > MAX_SHOWN_ITEMS { ", …" } else { "" };
    let shown: Vec<String> =
        items.take(MAX_SHOWN_ITEMS).map(|item| display_scalar(&item)).collect();
    format!("{}{more}", shown.join(", "))
}

fn display_scalar(value: &Bound<'_, PyAny>) -> String {
    if let Ok(text) = value.cast::<PyString>() {
        return shorten_text(&format!("{:?}", mask::text(&text.to_string_lossy())));
    }
    let number = value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>();
    match value.repr() {
        Ok(text) if number || value.is_instance_of::<PyBool>() => {
            shorten_text(&text.to_string_lossy())
        }
        // A number of more digits than Python writes, or an object.
        _ => format!("<{}>", class_name(value)),
    }
}

fn shorten_text(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
