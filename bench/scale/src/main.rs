//! How the service behaves as it grows; see README.md.

mod agents;
mod cluster;
mod cores;
mod edges;
mod http;
mod keys;
mod load;
mod process;
mod report;
mod subject;
mod visitors;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cluster::IN_CLUSTER;
use report::Part;
use serde_json::json;
use subject::AS_GINNEL;

const USAGE: &str = "scale [--short] [--json FILE] [--folder FOLDER] [--agents N,N,N] \
     [--edges N,N,N] [--visitors N,N,N] [--keys N,N,N] [--cores N,N] [--only PART,PART]";

/// A part, its sizes, and those of the short form.
const PARTS: [(&str, &[usize], &[usize]); 5] = [
    ("agents", &[100, 1_000, 10_000], &[50, 200]),
    ("edges", &[100, 10_000, 100_000], &[100, 1_000]),
    ("visitors", &[100, 2_000, 20_000], &[100, 1_000]),
    ("keys", &[1, 1_000, 100_000], &[1, 1_000]),
    ("cores", &[1, 2], &[1, 2]),
];

/// What is measured, and where it goes.
struct Plan {
    is_short: bool,
    json: Option<PathBuf>,
    folder: PathBuf,
    parts: Vec<(&'static str, Vec<usize>)>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == AS_GINNEL) {
        let ginnel = std::iter::once("ginnel").chain(arguments[1..].iter().map(String::as_str));
        return ExitCode::from(ginnel_cli::main(ginnel));
    }
    if arguments == [IN_CLUSTER] {
        process::raise_descriptors();
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(cluster::measure());
        return ExitCode::SUCCESS;
    }
    match plan(&arguments) {
        Ok(plan) => {
            process::raise_descriptors();
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(measure(&plan));
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn plan(arguments: &[String]) -> Result<Plan, String> {
    let is_short = arguments.iter().any(|it| it == "--short");
    let usual =
        PARTS.map(|(part, long, short)| (part, if is_short { short } else { long }.to_vec()));
    let folder = std::env::temp_dir();
    let mut plan = Plan { is_short, json: None, folder, parts: usual.to_vec() };
    let mut rest = arguments.iter().filter(|it| *it != "--short");
    while let Some(flag) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--json" => plan.json = Some(value.into()),
            "--folder" => plan.folder = value.into(),
            "--only" => {
                let only: Vec<&str> = value.split(',').collect();
                plan.parts.retain(|(part, _)| only.contains(part));
            }
            _ => *sizes_of(&mut plan, flag)? = sizes(value)?,
        }
    }
    Ok(plan)
}

fn sizes_of<'a>(plan: &'a mut Plan, flag: &str) -> Result<&'a mut Vec<usize>, String> {
    let found = plan.parts.iter_mut().find(|(part, _)| flag.strip_prefix("--") == Some(part));
    found.map(|(_, sizes)| sizes).ok_or_else(|| format!("{flag} is unknown, or not in --only"))
}

fn sizes(text: &str) -> Result<Vec<usize>, String> {
    let read = |size: &str| match size.parse() {
        Ok(0) | Err(_) => Err(format!("{size:?} is not a size")),
        Ok(size) => Ok(size),
    };
    text.split(',').map(read).collect()
}

async fn measure(plan: &Plan) {
    let folder = plan.folder.join(format!("ginnel-scale-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder to write to");
    let mut measured = Vec::new();
    for (name, sizes) in &plan.parts {
        let part = measure_part(name, sizes, &folder, plan.is_short).await;
        println!("{}\n", part.table());
        measured.push(part);
        if let Some(file) = &plan.json {
            let parts: Vec<_> = measured.iter().map(Part::json).collect();
            std::fs::write(file, format!("{:#}\n", json!(parts))).expect("a file to write to");
        }
    }
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

async fn measure_part(name: &'static str, sizes: &[usize], folder: &Path, is_short: bool) -> Part {
    let mut part = Part::new(name);
    match name {
        "edges" => edges::measure(&mut part, folder, sizes, is_short).await,
        "keys" => keys::measure(&mut part, folder, sizes, is_short).await,
        "cores" => cores::measure(&mut part, folder, sizes, is_short).await,
        "agents" => {
            for size in sizes {
                agents::measure(&mut part, folder, *size, is_short).await;
            }
        }
        _ => {
            for size in sizes {
                visitors::measure(&mut part, folder, *size, is_short).await;
            }
        }
    }
    part
}
