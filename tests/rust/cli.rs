//! The command: its exit codes. Its output and its signals are tested from outside.

use std::fs;

use ginnel_cli::{Exit, main};

use super::service::support::{Folder, Running};

fn exit(arguments: &[&str]) -> u8 {
    main(["ginnel"].iter().chain(arguments).copied())
}

#[test]
fn help_and_version_are_answers() {
    for arguments in [&["--help"][..], &["--version"], &["serve", "--help"], &["help", "serve"]] {
        assert_eq!(exit(arguments), Exit::Clean as u8, "{arguments:?}");
    }
}

#[test]
fn a_wrong_command_line_is_told_apart() {
    let folder = Folder::new();
    let key = folder.file("key");
    fs::write(&key, "not a key").unwrap();
    let (key, gone) = (key.display().to_string(), folder.file("gone").display().to_string());

    for arguments in [
        &[][..],
        &["dance"],
        &["serve", "--colour"],
        &["serve", "--port", "65536"],
        &["serve", "--rate-limit", "0/60s"],
        &["serve", "--public-url", "here"],
        &["serve", "--admin-key-file", &key],
        &["serve", "--admin-key-file", &gone],
    ] {
        assert_eq!(exit(arguments), Exit::Usage as u8, "{arguments:?}");
    }
}

#[test]
fn an_address_in_use_is_told_apart() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let running = runtime.block_on(Running::start());
    let port = running.service.url().rsplit_once(':').unwrap().1.to_owned();

    assert_eq!(exit(&["serve", "--port", &port]), Exit::Address as u8);
    assert_eq!(exit(&["serve", "--host", "192.0.2.1"]), Exit::Address as u8);
    runtime.block_on(running.stop());
}

#[test]
fn a_useless_database_is_told_apart() {
    let folder = Folder::new();
    let text = folder.file("text");
    fs::write(&text, "hello").unwrap();

    for path in [text, folder.file("no/folder"), folder.path.clone()] {
        let path = path.display().to_string();
        assert_eq!(exit(&["serve", "--path", &path]), Exit::Store as u8, "{path}");
    }
}
