//! The configuration file of version 2 (agent sheet, section 8) or 3, and what flags and the environment
//! say in its place.
//!
//! A setting is one row of [`SECTIONS`], in the file `sections`; `values` has the types that only an agent
//! has. Tunnels have names of their own, and so are a table of the file; endpoints are tunnels, too.

mod policy_file;
mod sections;
mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

pub use policy_file::read_definition;
pub use sections::{NGROK_LOG, SECTIONS, WITHOUT_EFFECT};
pub use values::{
    ConfigVersion, ConsoleChoice, NgrokLogConfig, NgrokLogFormat, NgrokLogLevel, Unused,
};

use ginnel_api::decode;
use ginnel_api::local::{endpoints, mocks, tunnels};
use ginnel_api::mask;
use ginnel_api::{Field, Kind, Operation, Secret};
use ginnel_base::address::HostPort;
use ginnel_base::letters::is_formatting;
use ginnel_settings::{
    ConfigFile, FileLayout, FileTable, ResolvedSettings, SettingOrigin, SettingSection,
    SettingSources, TableEntry, problem_at, read_field_value, resolve_settings,
};

use super::capture::CaptureStore;
use super::definition::{Definition, TUNNEL_NAMES};
use super::intercept::Interceptors;
use super::option_parts::OptionParts;
use super::options::AgentOptions;
use super::{Error, Trust};

/// The definitions of tunnels, by name.
const TUNNELS: &str = "tunnels";
/// A list of endpoints, which name themselves.
const ENDPOINTS: &str = "endpoints";
/// The mocks, by name.
const MOCKS: &str = "mocks";
/// Below it a file of version 3 has the settings of the agent.
const AGENT: &str = "agent";

/// How files look, by their version.
const LAYOUTS: &[FileLayout] = &[
    FileLayout { version: "2", section: None, tables: &[TUNNEL_TABLE, MOCK_TABLE] },
    FileLayout {
        version: "3",
        section: Some(AGENT),
        tables: &[ENDPOINT_TABLE, TUNNEL_TABLE, MOCK_TABLE],
    },
];
const TUNNEL_TABLE: FileTable = FileTable {
    key: TUNNELS,
    named_by: None,
    fields: tunnel_fields,
    other_names: &[],
    read_field: |name, node| policy_file::read_field(tunnels::Start::INFO.parameters, name, node),
};
const ENDPOINT_TABLE: FileTable = FileTable {
    key: ENDPOINTS,
    named_by: Some("name"),
    fields: endpoint_fields,
    other_names: &TUNNEL_NAMES,
    read_field: |name, node| policy_file::read_field(endpoints::Start::INFO.parameters, name, node),
};
const MOCK_TABLE: FileTable = FileTable {
    key: MOCKS,
    named_by: None,
    fields: mock_fields,
    other_names: &[],
    read_field: |name, node| read_field_value(mocks::Add::INFO.parameters, name, node),
};

fn tunnel_fields() -> Vec<String> {
    field_names(tunnels::Start::INFO.parameters, &["name"]).collect()
}

fn endpoint_fields() -> Vec<String> {
    let fields = field_names(endpoints::Start::INFO.parameters, &[]);
    fields.chain([policy_file::FIELD.to_owned()]).collect()
}

fn mock_fields() -> Vec<String> {
    field_names(mocks::Add::INFO.parameters, &["id", "captured_id"]).collect()
}

/// The names of fields, and of those inside of them.
fn field_names(
    fields: &'static [Field],
    without: &'static [&'static str],
) -> impl Iterator<Item = String> {
    let fields = fields.iter().filter(|field| !without.contains(&field.name));
    fields.flat_map(|field| {
        let inner = match &field.kind {
            Kind::Record(shape) => shape.fields,
            _ => &[],
        };
        let inner = inner.iter().map(|inner| format!("{}.{}", field.name, inner.name));
        std::iter::once(field.name.to_owned()).chain(inner)
    })
}

/// Everything that can be set.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    version: ConfigVersion,
    /// The options of the agent; what others below say is not in them yet.
    options: AgentOptions,
    /// Where the service takes agents, each `host:port`.
    pub server_addr: Vec<HostPort>,
    /// What the service knows the agent by.
    pub authtoken: Option<Secret>,
    /// A file that holds it.
    pub authtoken_file: Option<PathBuf>,
    /// The key for the management API, which an agent does not use.
    pub api_key: Option<Secret>,
    metadata: Option<String>,
    root_cas: Option<String>,
    /// Whether the view is shown that lives on a terminal.
    pub console: ConsoleChoice,
    unused: Unused,
    /// Where and how a program called `ngrok` writes its log.
    pub log: NgrokLogConfig,
    /// The definitions of tunnels and endpoints, by name.
    pub tunnels: BTreeMap<String, NamedEntry>,
    /// The mocks, by name.
    pub mocks: BTreeMap<String, NamedEntry>,
}

/// The definition of a tunnel or a mock in a file.
#[derive(Debug, Clone)]
pub struct NamedEntry {
    /// The key of its table.
    table: &'static str,
    file: PathBuf,
    entry: TableEntry,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            version: ConfigVersion::default(),
            options: AgentOptions::new(None, Secret::default(), Trust::System),
            server_addr: Vec::new(),
            authtoken: None,
            authtoken_file: None,
            api_key: None,
            metadata: None,
            root_cas: None,
            console: ConsoleChoice::default(),
            unused: Unused,
            log: NgrokLogConfig::default(),
            tunnels: BTreeMap::new(),
            mocks: BTreeMap::new(),
        }
    }
}

/// Reads a configuration file; what its values are worth is seen by [`load_config`].
///
/// # Errors
/// When the file cannot be read.
pub fn read_file(path: &Path) -> Result<ConfigFile, String> {
    ConfigFile::read_with_layouts(path, SECTIONS, LAYOUTS)
}

/// The same for the text of a file.
pub fn read_text(path: &Path, text: &str) -> ConfigFile {
    ConfigFile::from_text(path, text, SECTIONS, LAYOUTS)
}

/// Puts a configuration together: what a later file says wins, and tunnels are merged by name.
///
/// # Errors
/// With every problem, each with the flag, the variable or the place in the file that it comes from.
pub fn load_config(
    sources: &SettingSources<'_>,
) -> Result<ResolvedSettings<AgentConfig>, Vec<String>> {
    let unversioned =
        sources.files.iter().filter(|file| !file.has_setting("version") && !file.is_broken());
    let missing = |file: &ConfigFile| {
        format!("{}: version: is missing; write `version: 2`", mask::path(file.path()))
    };
    let problems: Vec<_> = unversioned.map(missing).collect();
    let mut resolved = match resolve_settings(SECTIONS, sources) {
        Ok(resolved) if problems.is_empty() => resolved,
        Ok(_) => return Err(problems),
        Err(others) => return Err(others.into_iter().chain(problems).collect()),
    };
    let mut problems = empty_values(&resolved);
    problems.extend(sources.files.iter().flat_map(repeated_names));
    problems.extend(sources.files.iter().flat_map(unreadable_names));
    if !problems.is_empty() {
        return Err(problems);
    }
    for file in sources.files {
        resolved.config.tunnels.extend(named_entries(file, TUNNELS));
        resolved.config.tunnels.extend(named_entries(file, ENDPOINTS));
        resolved.config.mocks.extend(named_entries(file, MOCKS));
    }
    Ok(resolved)
}

/// Problems of settings that are given, without a value that an agent could use.
fn empty_values(resolved: &ResolvedSettings<AgentConfig>) -> Vec<String> {
    let config = &resolved.config;
    let has_no_server = resolved.is_set("server_addr") && config.server_addr.is_empty();
    let has_no_token = config.authtoken.as_ref().is_some_and(|token| token.0.is_empty())
        && !resolved.takes_precedence("authtoken_file", "authtoken");
    let has_no_roots = config.root_cas.as_deref() == Some("");
    let cases = [
        (has_no_server, "server_addr", "is an empty list; name an address, or leave the key out"),
        (has_no_token, "authtoken", "is empty; write the authtoken, or leave the key out"),
        (has_no_roots, "root_cas", "is empty; name a file, or leave the key out for the system's"),
    ];
    let empty = cases.into_iter().filter(|(is_empty, ..)| *is_empty);
    empty.map(|(_, key, problem)| resolved.describe_problem(key, problem)).collect()
}

/// Problems of endpoints that have the name of a tunnel in the same file. One of the two would have no effect.
fn repeated_names(file: &ConfigFile) -> Vec<String> {
    let is_tunnel = |name: &str| file.table_entries(TUNNELS).any(|tunnel| tunnel.name == name);
    let repeated = file.table_entries(ENDPOINTS).filter(|endpoint| is_tunnel(&endpoint.name));
    let problem = |endpoint: &TableEntry| {
        let (key, name) = (endpoint.qualified_key(), &endpoint.name);
        let text = format!("{key}: {TUNNELS} has a {name:?} as well; rename one");
        problem_at(file.path(), endpoint.place, &text)
    };
    repeated.map(problem).collect()
}

/// Problems of tunnels and endpoints whose names a terminal would not show as they are.
fn unreadable_names(file: &ConfigFile) -> impl Iterator<Item = String> {
    [TUNNELS, ENDPOINTS].into_iter().flat_map(|table| file.table_entries(table)).filter_map(
        |entry| {
            let letter = entry.name.chars().find(|letter| is_invisible(*letter))?;
            let (name, code) = (&entry.name, u32::from(letter));
            let problem =
                format!("name: {name:?} has the invisible character U+{code:04X}; leave it out");
            Some(problem_at(
                file.path(),
                entry.place,
                &format!("{}: {problem}", entry.qualified_key()),
            ))
        },
    )
}

/// Returns true for a character that must not be in a name. Joiners are a part of emoji and of words in some scripts.
fn is_invisible(letter: char) -> bool {
    letter.is_control() || is_formatting(letter) && !matches!(letter, '\u{200c}' | '\u{200d}')
}

/// What a file says in one of its tables, by name.
fn named_entries(
    file: &ConfigFile,
    table: &'static str,
) -> impl Iterator<Item = (String, NamedEntry)> {
    file.table_entries(table).map(move |entry| {
        let (name, file) = (entry.name.clone(), file.path().to_owned());
        (name, NamedEntry { table, file, entry: entry.clone() })
    })
}

/// The keys that are set and change nothing here, of these sections.
pub fn without_effect(
    resolved: &ResolvedSettings<AgentConfig>,
    sections: &[SettingSection<AgentConfig>],
) -> Vec<&'static str> {
    let settings = sections.iter().flat_map(SettingSection::settings);
    let keys = settings.map(|setting| setting.key);
    keys.filter(|key| resolved.is_set(key)).collect()
}

impl AgentConfig {
    /// The options of an agent.
    ///
    /// # Errors
    /// When a key is missing or unusable; the message names it.
    pub fn agent_options(&self) -> Result<AgentOptions, Error> {
        let missing = |option: &str| option_error(option, "is missing");
        if self.server_addr.is_empty() {
            return Err(missing("server_addr"));
        }
        Ok(AgentOptions {
            server_addrs: self.server_addr.clone(),
            authtoken: self.authtoken.clone().ok_or_else(|| missing("authtoken"))?,
            trust: self.read_trust()?,
            mocks: self.decode_mocks()?,
            ..self.local_options()
        })
    }

    /// The same for an agent whose service is known in another way.
    pub fn local_options(&self) -> AgentOptions {
        let metadata = self.metadata.clone().unwrap_or_default();
        AgentOptions { metadata, ..self.options.clone() }
    }

    fn read_trust(&self) -> Result<Trust, Error> {
        match self.root_cas.as_deref() {
            None | Some("trusted" | "host") => Ok(Trust::System),
            Some(path) => Trust::from_file(Path::new(path))
                .map_err(|problem| option_error("root_cas", &problem.to_string())),
        }
    }

    /// The definition of a tunnel.
    ///
    /// # Errors
    /// When there is none of that name, or it is wrong.
    pub fn tunnel_definition(&self, name: &str) -> Result<Definition, Error> {
        let found = self.tunnels.get(name);
        let tunnel =
            found.ok_or_else(|| option_error(&format!("{TUNNELS}.{name}"), "is not defined"))?;
        let document = tunnel.to_document("name");
        let definition = match tunnel.table {
            ENDPOINTS => policy_file::inline_policy(document)
                .map_err(|problem| vec![problem])
                .and_then(|document| Definition::read_endpoint(&document)),
            _ => Definition::from_document(&document),
        };
        definition.map_err(|problems| option_error(&tunnel.place(), &problems.join("; ")))
    }

    /// The fields of the mocks.
    ///
    /// # Errors
    /// When one of them is wrong.
    pub fn decode_mocks(&self) -> Result<Vec<Map<String, Value>>, Error> {
        self.mocks.values().map(NamedEntry::decode_mock).collect()
    }

    /// Everything that is wrong with the options, all tunnels and all mocks.
    pub fn find_problems(&self) -> Vec<Error> {
        let tunnels = self.tunnels.keys().filter_map(|name| self.tunnel_definition(name).err());
        let mocks = self.mocks.values().filter_map(|mock| mock.decode_mock().err());
        self.option_problems().into_iter().chain(tunnels).chain(mocks).collect()
    }

    /// The problems of the options that keep an agent from starting. Missing options are not among them,
    /// because flags and variables may contain them.
    pub fn option_problems(&self) -> Vec<Error> {
        let (trust, unreadable) = match self.read_trust() {
            Ok(trust) => (trust, None),
            Err(problem) => (Trust::Anything, Some(problem)),
        };
        let authtoken = self.authtoken.clone().unwrap_or_default();
        let options = AgentOptions { trust, authtoken, ..self.local_options() };
        let file = options.inspect_file.as_deref();
        let file = file.and_then(|path| CaptureStore::check_file(options.inspect, path).err());
        let file = file.map(|problem| option_error("inspect_file", &problem));
        let parts = OptionParts::from_options(&options).err().unwrap_or_default();
        let parts = parts.into_iter().map(|problem| match problem {
            Error::Certificates(problem) => option_error("root_cas", &problem),
            problem => problem,
        });
        unreadable.into_iter().chain(parts).chain(file).collect()
    }
}

impl NamedEntry {
    /// The fields, and the name as one of them.
    fn to_document(&self, name: &str) -> Map<String, Value> {
        let fields = self.entry.fields.iter().map(|it| (it.name.clone(), it.value.clone()));
        fields.chain([(name.to_owned(), self.entry.name.as_str().into())]).collect()
    }

    /// The fields of a mock.
    fn decode_mock(&self) -> Result<Map<String, Value>, Error> {
        let decoded = decode::decode_fields(mocks::Add::INFO.parameters, self.to_document("id"));
        let mut problems: Vec<_> = decoded.errors.iter().map(ToString::to_string).collect();
        if problems.is_empty() {
            let added = Interceptors::default().add_mock(decoded.arguments.clone(), true);
            problems.extend(added.err().map(|error| error.to_string()));
        }
        match problems.is_empty() {
            true => Ok(decoded.arguments),
            false => Err(option_error(&self.place(), &problems.join("; "))),
        }
    }

    /// The key, the value and the place of each field; secrets are masked.
    pub fn masked_fields(&self) -> impl Iterator<Item = [String; 3]> {
        self.entry.fields.iter().map(|field| {
            let key = format!("{}.{}.{}", self.table, self.entry.name, field.name);
            let mut value = json!({&field.name: field.value});
            mask::value(&mut value);
            let text = match &value[&field.name] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            [key, text, SettingOrigin::File(self.file.clone(), field.place).to_string()]
        })
    }

    /// The file, line and column of the entry, and its key.
    pub fn place(&self) -> String {
        problem_at(&self.file, self.entry.place, &self.key())
    }

    /// The key of the entry, with its table: `tunnels.web`.
    pub fn key(&self) -> String {
        self.entry.qualified_key()
    }
}

/// Where the configuration file is when nobody says.
pub fn usual_path() -> Option<PathBuf> {
    let home = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    home.map(|home| home.join("ginnel").join("ginnel.yml"))
}

fn option_error(option: &str, problem: &str) -> Error {
    Error::Option { option: option.to_owned(), problem: problem.to_owned() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::Agent;

    fn read(texts: &[&str]) -> Result<ResolvedSettings<AgentConfig>, Vec<String>> {
        let files: Vec<_> = texts.iter().map(|text| read_text(Path::new("F"), text)).collect();
        let (flags, environment) = (&|_: &str| None, &|_: &str| None);
        load_config(&SettingSources { flags, environment, files: &files })
    }

    fn problems(text: &str) -> Vec<String> {
        match read(&[text]) {
            Ok(read) => read.config.find_problems().iter().map(ToString::to_string).collect(),
            Err(problems) => problems,
        }
    }

    fn a_port(port: u16) -> HostPort {
        HostPort::parse(&format!("a:{port}")).unwrap()
    }

    #[test]
    fn later_files_win_and_tunnels_are_merged() {
        let config = read(&[
            "version: 2\nauthtoken: one\nserver_addr: a:1\ntunnels:\n  web: {addr: 80, proto: http}\n",
            "version: 2\nauthtoken: two\ntunnels:\n  raw: {addr: 22, proto: tcp}\n",
        ])
        .unwrap()
        .config;

        let options = config.agent_options().unwrap();
        assert_eq!(options.authtoken.0, "two");
        assert_eq!(options.server_addrs, [a_port(1)]);
        assert_eq!(config.tunnels.keys().collect::<Vec<_>>(), ["raw", "web"]);
        assert_eq!(config.tunnel_definition("raw").unwrap().address.to_string(), "localhost:22");
        assert!(config.find_problems().is_empty());
    }

    #[test]
    fn a_service_has_one_address_or_several() {
        let addresses = |text: &str| {
            let text = format!("version: 2\nauthtoken: x\nserver_addr: {text}\n");
            let addresses = read(&[&text]).unwrap().config.agent_options().unwrap().server_addrs;
            addresses.iter().map(HostPort::to_string).collect::<Vec<_>>()
        };

        assert_eq!(addresses("a:1"), ["a:1"]);
        assert_eq!(addresses("[a:1, b:2]"), ["a:1", "b:2"]);

        let none = read(&["version: 2\nauthtoken: x\n"]).unwrap().config;
        assert_eq!(none.agent_options().unwrap_err().to_string(), "server_addr: is missing");
        let empty = problems("version: 2\nserver_addr: []\n");
        assert!(empty[0].starts_with("F:2:14: server_addr: is an empty list"), "{empty:?}");
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_place_and_the_nearest_one() {
        let text = "version: 2\nauthtokn: y\ntunnels:\n  web:\n    adr: 80\n    proto: http\n";

        assert_eq!(
            problems(text),
            [
                "F:2:1: unknown key \"authtokn\"; did you mean \"authtoken\"?",
                "F:5:5: unknown key \"tunnels.web.adr\"; did you mean \"tunnels.web.addr\"?",
            ]
        );
    }

    #[test]
    fn a_file_of_version_3_has_its_settings_below_agent() {
        let text = "version: 3\nagent:\n  authtoken: x\n  connect_url: a:1\n  web_addr: false\n\
            tunnels:\n  raw: {addr: 22, proto: tcp}\n\
            endpoints:\n  - name: web\n    url: https://a.test\n    upstream:\n      url: 80\n\
            \n    bindings: [public]\n    traffic_policy: {}\n";

        let config = read(&[text]).unwrap().config;

        assert_eq!(config.agent_options().unwrap().server_addrs, [a_port(1)]);
        assert_eq!(config.tunnels.keys().collect::<Vec<_>>(), ["raw", "web"]);
        assert_eq!(config.tunnel_definition("web").unwrap().document["domain"], "a.test");
        assert!(config.find_problems().is_empty(), "{:?}", config.find_problems());
    }

    #[test]
    fn what_is_unknown_in_version_3_is_refused_with_its_place_and_the_nearest_key() {
        let text = "version: 3\nauthtoken: x\nagent:\n  authtokn: y\nendpoints:\n  - name: web\n    \
            urll: x\n    upstream:\n      ulr: 80\n  - upstream: {url: 80}\n  - name: web\n";

        assert_eq!(
            problems(text),
            [
                "F:2:1: unknown key \"authtoken\"",
                "F:4:3: unknown key \"agent.authtokn\"; did you mean \"agent.authtoken\"?",
                "F:7:5: unknown key \"endpoints.web.urll\"; did you mean \"endpoints.web.url\"?",
                "F:9:7: unknown key \"endpoints.web.upstream.ulr\"; did you mean \
                    \"endpoints.web.upstream.url\"?",
                "F:10:5: endpoints: an entry has no name",
                "F:11:5: endpoints: there is more than one \"web\"",
            ]
        );
        assert_eq!(
            problems("version: 3\nendpoints: {web: {}}\n"),
            ["F:2:12: endpoints: must be a list"]
        );
    }

    #[test]
    fn no_field_of_tunnels_gets_a_hint_in_an_endpoint_that_means_something_else() {
        let (own, names) = (endpoint_fields(), BTreeMap::from(TUNNEL_NAMES));
        let others = tunnel_fields();
        let others = others.iter().filter(|field| !field.contains('.') && !own.contains(field));
        for field in others.map(String::as_str).chain(["authtoken", "pooling", "descripton"]) {
            let text = format!("version: 3\nendpoints:\n  - name: web\n    {field}: 1\n");
            let hint = match (field, names.get(field)) {
                ("descripton", _) => "; did you mean \"endpoints.web.description\"?".to_owned(),
                (_, Some(meant)) => format!("; did you mean \"endpoints.web.{meant}\"?"),
                (_, None) => String::new(),
            };
            let problem = format!("F:4:5: unknown key \"endpoints.web.{field}\"{hint}");
            assert_eq!(problems(&text), [problem], "{field}");
        }
        assert!(names.values().all(|meant| own.iter().any(|field| field == meant)));
    }

    #[test]
    fn fields_inside_of_others_have_their_places() {
        let text = "version: 2\ntunnels:\n  web:\n    addr: 80\n    proto: http\n    \
            request_header:\n      ad: [x]\n";

        assert_eq!(
            problems(text),
            ["F:7:7: unknown key \"tunnels.web.request_header.ad\"; did you mean \
                \"tunnels.web.request_header.add\"?"]
        );
    }

    #[test]
    fn a_version_is_needed_in_each_file() {
        assert_eq!(problems("authtoken: x\n"), ["F: version: is missing; write `version: 2`"]);
        assert_eq!(problems("version: 4\n"), ["F:1:10: version: is '4', neither 2 nor 3"]);
        assert!(read(&["version: 2\n", "metadata: x\n"]).is_err());
    }

    #[test]
    fn wrong_values_name_their_key_and_place() {
        for (text, expected) in [
            ("heartbeat_interval: soon", "F:2:21: heartbeat_interval: 'soon' is not a duration"),
            ("inspect_db_size: -7", "F:2:18: inspect_db_size: '-7' is neither -1, 0 nor a number"),
            ("web_addr: [1]", "F:2:11: web_addr: takes one value, not a list"),
            ("console_ui: maybe", "F:2:13: console_ui: 'maybe' is none of true, false, iftty"),
            ("root_cas: /no/such/file", "root_cas: /no/such/file: "),
            ("tunnels: {web: {addr: 80, proto: https}}", "F:2:11: tunnels.web: "),
            ("tunnels: [web]", "F:2:10: tunnels: must hold keys with their values"),
            ("tunnels: {web: 80}", "F:2:16: tunnels.web: must hold keys with their values"),
            ("mocks: {a: {status: x}}", "F:2:9: mocks.a: status: is a string, not"),
            ("mocks: {a: {status: 99}}", "F:2:9: mocks.a: status: 99 is not from 200 to 599"),
            ("mocks: {a b: {}}", "F:2:9: mocks.a b: id: \"a b\" is not 1 to 64 of"),
            ("mocks: {a: {captured_id: x}}", "F:2:13: unknown key \"mocks.a.captured_id\""),
        ] {
            let problem = problems(&format!("version: 2\n{text}\n")).join("\n");
            assert!(problem.starts_with(expected), "{problem}");
        }
    }

    #[test]
    fn what_has_no_effect_is_known() {
        let read =
            read(&["version: 2\nregion: eu\nlog_level: debug\nupdate_check: false\n"]).unwrap();

        assert_eq!(without_effect(&read, &[NGROK_LOG]), ["log_level"]);
        assert_eq!(without_effect(&read, &[WITHOUT_EFFECT]), ["region", "update_check"]);
    }

    /// Values that most settings refuse.
    const BAD_VALUES: [&str; 6] =
        ["a b", "http://ada:swordfish@a.test/x", "[a b]", "-7", "/nowhere/at/all", "1.5x"];

    #[tokio::test]
    async fn a_start_refuses_what_a_check_refuses() {
        let mut refused = std::collections::BTreeSet::new();
        let settings = SECTIONS.iter().flat_map(SettingSection::settings);
        // A relative name would make a file in the working directory.
        let takes = |key: &str, value: &str| key != "inspect_file" || value.starts_with('/');
        for (key, value) in settings.flat_map(|it| BAD_VALUES.map(|value| (it.key, value))) {
            if !takes(key, value) {
                continue;
            }
            let base = [
                ("version", "2"),
                ("authtoken", "x"),
                ("server_addr", "127.0.0.1:1"),
                ("web_addr", "false"),
            ];
            let lines = base.into_iter().filter(|(known, _)| *known != key);
            let lines = lines.chain([(key, value)]);
            let text: String = lines.map(|(key, value)| format!("{key}: {value}\n")).collect();

            let checked = problems(&text);
            let started = match read(&[&text]) {
                Ok(read) => match read.config.agent_options() {
                    Ok(options) => Agent::start(options).await.map(drop).map_err(|it| vec![it]),
                    Err(problem) => Err(vec![problem]),
                }
                .map_err(|problems| problems.iter().map(ToString::to_string).collect()),
                Err(problems) => Err(problems),
            };

            let started: Vec<String> = started.err().unwrap_or_default();
            assert_eq!(checked.is_empty(), started.is_empty(), "{key}: {value}: {started:?}");
            let names_key = |problem: &String| problem.contains(key);
            assert!(checked.iter().chain(&started).all(names_key), "{checked:?} {started:?}");
            let is_shown = |problem: &String| problem.contains("swordfish");
            assert!(!checked.iter().chain(&started).any(is_shown), "{checked:?} {started:?}");
            refused.extend((!checked.is_empty()).then_some(key));
        }
        for key in ["web_allow_hosts", "replay_allow_hosts", "unix_socket_roots", "inspect_file"] {
            assert!(refused.contains(key), "{key}: {refused:?}");
        }
    }

    #[test]
    fn a_secret_is_in_no_problem() {
        let problem =
            problems("version: 2\nauthtoken: [swordfish]\napi_key: {swordfish: 1}\n").join("\n");

        assert!(problem.contains("authtoken") && !problem.contains("swordfish"), "{problem}");
    }
}
