//! `ginnel policy`: check a traffic policy, and try it without traffic.

use std::fs;
use std::io::Read;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use ginnel_api::{mask, yaml};
use ginnel_policy::trial::{self, Report, Traffic, Trial};
use ginnel_policy::{ActionTrace, Problem, Protocol, RuleTrace};

use super::error::{CliError, CommandResult, Exit};
use super::output::print_line;

pub(super) fn command() -> Command {
    Command::new("policy")
        .about("Check a traffic policy, or try it without traffic")
        .subcommand_required(true)
        .after_help(
            "Examples:\n  ginnel policy check policy.yaml\n  \
             ginnel policy test policy.yaml --url https://example.com/admin --client-ip 192.0.2.1",
        )
        .subcommand(check_command())
        .subcommand(test_command())
}

pub(super) fn run(matches: &ArgMatches) -> CommandResult<()> {
    match matches.subcommand() {
        Some(("check", matches)) => run_check(matches),
        Some(("test", matches)) => run_test(matches),
        _ => Err(CliError::usage("no command given: use check or test")),
    }
}

fn check_command() -> Command {
    with_common_arguments(
        Command::new("check").about("Report what is wrong with a traffic policy, if anything"),
    )
}

fn test_command() -> Command {
    with_common_arguments(
        Command::new("test").about("Show what the rules do with a request or a connection"),
    )
    .arg(option_argument(
        "traffic",
        "FILE",
        "The whole traffic, as YAML or JSON; options add to it",
    ))
    .arg(option_argument("method", "METHOD", "The method of the request"))
    .arg(option_argument("url", "URL", "The URL of the request"))
    .arg(
        option_argument("header", "NAME: VALUE", "A header of the request")
            .short('H')
            .action(ArgAction::Append),
    )
    .arg(option_argument("data", "TEXT", "The body of the request").short('d'))
    .arg(option_argument("client-ip", "ADDRESS", "The IP address of the visitor"))
    .arg(
        option_argument("status", "STATUS", "The status of the upstream's response")
            .value_parser(value_parser!(u16)),
    )
    .arg(
        option_argument("response-header", "NAME: VALUE", "A header of the upstream's response")
            .action(ArgAction::Append),
    )
    .arg(option_argument("response-data", "TEXT", "The body of the upstream's response"))
}

fn with_common_arguments(command: Command) -> Command {
    let protocols = ["http", "https", "tcp", "tls"];
    command
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .help("The policy, as YAML or JSON; - is standard input"),
        )
        .arg(
            option_argument("protocol", "NAME", "The protocol of the traffic")
                .value_parser(protocols)
                .default_value("http"),
        )
        .arg(
            Arg::new("edge")
                .long("edge")
                .action(ArgAction::SetTrue)
                .help("Treat the policy as one for an edge, whatever its phases are called"),
        )
        .arg(
            option_argument("output", "FORMAT", "The output format")
                .value_parser(["text", "json"])
                .default_value("text"),
        )
}

fn option_argument(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn run_check(matches: &ArgMatches) -> CommandResult<()> {
    let (file, text) = read_document(matches)?;
    let found = trial::parse_policy(&text, read_protocol(matches), read_edge(matches))
        .err()
        .unwrap_or_default();
    if !found.is_empty() {
        return Err(report_problems(matches, file, &found));
    }
    match is_json(matches) {
        true => print_line("[]"),
        false => print_line(&format!("{file}: no problems")),
    }
    Ok(())
}

fn run_test(matches: &ArgMatches) -> CommandResult<()> {
    let (file, text) = read_document(matches)?;
    let traffic = read_traffic(matches)?;
    let trial = Trial::parse(&text, read_protocol(matches), read_edge(matches), None);
    let mut trial = trial.map_err(|found| report_problems(matches, file, &found))?;
    let report =
        trial.simulate_traffic(&traffic).map_err(|invalid| CliError::usage(invalid.to_string()))?;
    match is_json(matches) {
        true => print_line(&json!(report).to_string()),
        false => report_lines(&report).iter().for_each(|line| print_line(line)),
    }
    Ok(())
}

/// The name of the file, and what it holds.
fn read_document(matches: &ArgMatches) -> CommandResult<(&str, String)> {
    let file = matches.get_one::<String>("file").map_or("-", String::as_str);
    Ok((file, read_text(file)?))
}

fn read_text(file: &str) -> CommandResult<String> {
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().read_to_string(&mut text).map(|_| text),
        file => fs::read_to_string(file),
    };
    read.map_err(|error| CliError::usage(format!("{file}: {error}")))
}

fn read_protocol(matches: &ArgMatches) -> Protocol {
    let name = matches.get_one::<String>("protocol").map_or("http", String::as_str);
    name.parse().unwrap_or(Protocol::Http)
}

/// Whether the document is for edges, if that was said.
fn read_edge(matches: &ArgMatches) -> Option<bool> {
    matches.get_flag("edge").then_some(true)
}

fn is_json(matches: &ArgMatches) -> bool {
    matches.get_one::<String>("output").is_some_and(|format| format == "json")
}

/// Says what is wrong with a document.
fn report_problems(matches: &ArgMatches, file: &str, found: &[Problem]) -> CliError {
    if is_json(matches) {
        print_line(&json!(found).to_string());
    } else {
        found
            .iter()
            .for_each(|problem| print_line(&format!("{file}: {problem} ({})", problem.code)));
    }
    let count = if found.len() == 1 {
        "one problem".to_owned()
    } else {
        format!("{} problems", found.len())
    };
    CliError::new(Exit::Failed, format!("{file} has {count}"))
}

/// What comes, from a file and from options.
fn read_traffic(matches: &ArgMatches) -> CommandResult<Traffic> {
    let mut traffic = match matches.get_one::<String>("traffic") {
        None => json!({}),
        Some(file) => yaml::read_yaml(&read_text(file)?)
            .map_err(|error| CliError::usage(format!("{file}: {error}")))?,
    };
    let request = [("method", "method"), ("url", "url"), ("data", "body")];
    for (option, field) in request {
        if let Some(text) = matches.get_one::<String>(option) {
            traffic["request"][field] = json!(text);
        }
    }
    if let Some(text) = matches.get_one::<String>("response-data") {
        traffic["response"]["body"] = json!(text);
    }
    if let Some(status) = matches.get_one::<u16>("status") {
        traffic["response"]["status"] = json!(status);
    }
    if let Some(address) = matches.get_one::<String>("client-ip") {
        traffic["connection"]["client_ip"] = json!(address);
    }
    add_headers(matches, "header", &mut traffic["request"])?;
    add_headers(matches, "response-header", &mut traffic["response"])?;
    if read_protocol(matches) == Protocol::Http && traffic["request"].is_null() {
        traffic["request"] = json!({});
    }
    let fields = traffic.as_object_mut().into_iter().flatten();
    let empty: Vec<_> =
        fields.filter(|(_, value)| value.is_null()).map(|(name, _)| name.clone()).collect();
    if let Some(fields) = traffic.as_object_mut() {
        empty.iter().for_each(|name| drop(fields.remove(name)));
    }
    serde_json::from_value(traffic).map_err(|error| CliError::usage(error.to_string()))
}

fn add_headers(matches: &ArgMatches, option: &str, message: &mut Value) -> CommandResult<()> {
    for header in matches.get_many::<String>(option).into_iter().flatten() {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            CliError::usage(format!("{:?} is not a header; write NAME: VALUE", mask::text(header)))
        })?;
        let values = &mut message["headers"][name.trim()];
        match values {
            Value::Array(values) => values.push(json!(value.trim())),
            values => *values = json!([value.trim()]),
        }
    }
    Ok(())
}

/// A report for people.
fn report_lines(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = report.rules.iter().flat_map(rule_lines).collect();
    for log in &report.logs {
        lines.push(format!("log: {log}"));
    }
    if let Some(url) = &report.forwarded_to {
        lines.push(format!("forwarded to {url}"));
    }
    if let Some(request) = &report.request {
        lines.push(format!("the upstream sees: {} {}", request.method, request.url));
    }
    lines.push(match &report.response {
        Some(response) => {
            let code = response.code.map_or_else(String::new, |code| format!(" ({code})"));
            format!("the visitor sees: {}{code}", response.status)
        }
        None if report.outcome == trial::Outcome::Close => "the connection is closed".to_owned(),
        None => "the connection goes on".to_owned(),
    });
    if let Some(response) = &report.response {
        lines.extend(response.headers.iter().map(|(name, value)| format!("  {name}: {value}")));
        lines.extend(response.body.lines().map(|line| format!("  | {line}")));
    }
    lines
}

fn rule_lines(rule: &RuleTrace) -> Vec<String> {
    let name = if rule.name.is_empty() { String::new() } else { format!(" {:?}", rule.name) };
    let matched = match (&rule.error, rule.matched) {
        (Some(error), _) => format!("skipped: {error}"),
        (None, true) => "matched".to_owned(),
        (None, false) => "did not match".to_owned(),
    };
    let mut lines = vec![format!("{}[{}]{name} {matched}", rule.phase, rule.index)];
    lines.extend(rule.actions.iter().map(action_line));
    lines
}

fn action_line(action: &ActionTrace) -> String {
    let mut line = format!("  {}", action.r#type);
    if let Some(error) = &action.error {
        line.push_str(&format!(" failed: {error}"));
    } else if !action.result.is_null() {
        line.push_str(&format!(" {}", action.result));
    }
    if action.ended {
        line.push_str(" and ended the phase");
    }
    line
}
