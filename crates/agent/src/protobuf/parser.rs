//! Reads the text of a `.proto` file: syntax 2 and 3, and editions.
//!
//! Options are passed over: none of them changes what a message says, but that of the groups of editions,
//! whose fields are read by how they are written.

use super::definitions::{
    EnumDefinition, ExtensionDefinition, FieldDefinition, FileDefinition, Import, KindDefinition,
    MessageDefinition, MethodDefinition, ProtoError, Scalar,
};
use super::tokens::{ProtoToken, read_tokens};

/// How deep messages may stand in each other.
const MAX_DEPTH: usize = 64;
/// The largest number of a field.
const MAX_FIELD_NUMBER: u32 = (1 << 29) - 1;

/// Reads a file.
pub(super) fn parse_file(name: &str, source: &str) -> Result<FileDefinition, ProtoError> {
    let tokens =
        read_tokens(source).map_err(|(line, problem)| ProtoError::new(name, line, problem))?;
    let mut parser = Parser {
        tokens,
        at: 0,
        depth: 0,
        file: FileDefinition { name: name.to_owned(), ..FileDefinition::default() },
    };
    match parser.parse_definitions() {
        Ok(()) => Ok(parser.file),
        Err((line, problem)) => Err(ProtoError::new(name, line, problem)),
    }
}

/// The line of a problem, and what it is.
type ParseProblem = (usize, String);

struct Parser {
    tokens: Vec<(ProtoToken, usize)>,
    at: usize,
    depth: usize,
    file: FileDefinition,
}

impl Parser {
    fn parse_definitions(&mut self) -> Result<(), ParseProblem> {
        let mut package = String::new();
        while self.at < self.tokens.len() {
            if self.take_sign(';') {
                continue;
            }
            let line = self.current_line();
            let word = self.expect_word("a definition")?;
            match word.as_str() {
                "syntax" | "edition" | "option" => self.skip_statement()?,
                "package" => {
                    package = self.expect_word("the name of the package")?;
                    self.expect_sign(';')?;
                }
                "import" => {
                    for kind in ["public", "weak", "option"] {
                        self.take_word(kind);
                    }
                    let path = self.expect_text("the path of the import")?;
                    self.expect_sign(';')?;
                    self.file.imports.push(Import { path, line });
                }
                "message" => self.parse_message(&package)?,
                "enum" => self.parse_enum(&package)?,
                "extend" => self.parse_extend(&package)?,
                "service" => self.parse_service(&package)?,
                _ => {
                    let problem = format!(
                        "{word:?} begins nothing: syntax, edition, package, import, option, message, \
                         enum, extend and service do"
                    );
                    return Err((line, problem));
                }
            }
        }
        Ok(())
    }

    fn parse_message(&mut self, scope: &str) -> Result<(), ParseProblem> {
        let line = self.current_line();
        let name = qualified_name(scope, &self.expect_name("the name of the message")?);
        let message = MessageDefinition { name, line, ..MessageDefinition::default() };
        self.parse_message_body(message)
    }

    fn parse_message_body(&mut self, mut message: MessageDefinition) -> Result<(), ParseProblem> {
        self.expect_sign('{')?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err((message.line, format!("messages stand in more than {MAX_DEPTH} others")));
        }
        while !self.take_sign('}') {
            self.parse_member(&mut message)?;
        }
        self.depth -= 1;
        self.file.messages.push(message);
        Ok(())
    }

    fn parse_member(&mut self, message: &mut MessageDefinition) -> Result<(), ParseProblem> {
        if self.take_sign(';') {
            return Ok(());
        }
        // These words may also be types of fields: what comes after them tells.
        let begins_field = matches!(self.peek_token(2), Some(ProtoToken::Sign('=')));
        let scope = message.name.clone();
        match self.peek_word() {
            Some("message") if !begins_field => self.then(|it| it.parse_message(&scope)),
            Some("enum") if !begins_field => self.then(|it| it.parse_enum(&scope)),
            Some("extend") if !begins_field => self.then(|it| it.parse_extend(&scope)),
            Some("option") => self.skip_statement(),
            Some("reserved" | "extensions") if !begins_field => self.skip_statement(),
            Some("oneof") if matches!(self.peek_token(2), Some(ProtoToken::Sign('{'))) => {
                self.at += 3;
                while !self.take_sign('}') {
                    self.parse_member(message)?;
                }
                Ok(())
            }
            _ => {
                let field = self.parse_field(&scope)?;
                message.fields.push(field);
                Ok(())
            }
        }
    }

    /// Goes past a word, and on.
    fn then(
        &mut self,
        go_on: impl FnOnce(&mut Self) -> Result<(), ParseProblem>,
    ) -> Result<(), ParseProblem> {
        self.at += 1;
        go_on(self)
    }

    fn parse_field(&mut self, scope: &str) -> Result<FieldDefinition, ParseProblem> {
        let begins_field = matches!(self.peek_token(2), Some(ProtoToken::Sign('=')));
        let mut labels = ["repeated", "optional", "required"].into_iter();
        let label = labels.find(|label| !begins_field && self.take_word(label));
        let is_repeated = label == Some("repeated");
        let line = self.current_line();
        if matches!(self.peek_word(), Some("map"))
            && matches!(self.peek_token(1), Some(ProtoToken::Sign('<')))
        {
            return self.parse_map_field(scope, line);
        }
        let kind = self.expect_word("the type of a field")?;
        let name = self.expect_name("the name of the field")?;
        self.expect_sign('=')?;
        let number = self.parse_field_number()?;
        self.skip_options()?;
        if kind == "group" {
            let group = qualified_name(scope, &name);
            let message =
                MessageDefinition { name: group.clone(), line, ..MessageDefinition::default() };
            self.parse_message_body(message)?;
            let name = name.to_lowercase();
            return Ok(FieldDefinition {
                name,
                number,
                is_repeated,
                kind: KindDefinition::Group(group),
                line,
            });
        }
        self.expect_sign(';')?;
        Ok(FieldDefinition { name, number, is_repeated, kind: kind_from_name(kind, scope), line })
    }

    fn parse_map_field(
        &mut self,
        scope: &str,
        line: usize,
    ) -> Result<FieldDefinition, ParseProblem> {
        self.at += 2;
        let key = self.expect_word("the type of the keys")?;
        let key_kind = Scalar::from_name(&key);
        let is_key = |scalar| !matches!(scalar, Scalar::Double | Scalar::Float | Scalar::Bytes);
        if !key_kind.is_some_and(is_key) {
            return Err((line, format!("{key:?} cannot be the type of the keys of a map")));
        }
        self.expect_sign(',')?;
        let value = self.expect_word("the type of the values")?;
        self.expect_sign('>')?;
        let name = self.expect_name("the name of the field")?;
        self.expect_sign('=')?;
        let number = self.parse_field_number()?;
        self.skip_options()?;
        self.expect_sign(';')?;
        let part = |name: &str, number, kind| FieldDefinition {
            name: name.to_owned(),
            number,
            is_repeated: false,
            kind: kind_from_name(kind, scope),
            line,
        };
        // No name that a file writes has a space in it.
        let entry = qualified_name(scope, &format!("{name} entry"));
        self.file.messages.push(MessageDefinition {
            name: entry.clone(),
            line,
            fields: vec![part("key", 1, key), part("value", 2, value)],
            is_map_entry: true,
        });
        let kind = KindDefinition::Named { name: format!(".{entry}"), scope: String::new() };
        Ok(FieldDefinition { name, number, is_repeated: true, kind, line })
    }

    fn parse_field_number(&mut self) -> Result<u32, ParseProblem> {
        let (line, written) = (self.current_line(), self.expect_number("the number of the field")?);
        let number = parse_integer(&written).and_then(|number| u32::try_from(number).ok());
        number.filter(|number| (1..=MAX_FIELD_NUMBER).contains(number)).ok_or_else(|| {
            (line, format!("{written} is no number of a field: 1 to {MAX_FIELD_NUMBER} are"))
        })
    }

    fn parse_enum(&mut self, scope: &str) -> Result<(), ParseProblem> {
        let line = self.current_line();
        let name = qualified_name(scope, &self.expect_name("the name of the enum")?);
        let mut values = Vec::new();
        self.expect_sign('{')?;
        while !self.take_sign('}') {
            if self.take_sign(';') {
                continue;
            }
            let is_value = matches!(self.peek_token(1), Some(ProtoToken::Sign('=')));
            if !is_value && matches!(self.peek_word(), Some("option" | "reserved")) {
                self.skip_statement()?;
                continue;
            }
            let value = self.expect_name("the name of a value")?;
            self.expect_sign('=')?;
            let is_negative = self.take_sign('-');
            let (line, written) =
                (self.current_line(), self.expect_number("the number of the value")?);
            let number =
                parse_integer(&written).map(|number| if is_negative { -number } else { number });
            let number = number.and_then(|number| i32::try_from(number).ok());
            let number =
                number.ok_or_else(|| (line, format!("{written} has no room in 32 bits")))?;
            self.skip_options()?;
            self.expect_sign(';')?;
            values.push((number, value));
        }
        self.file.enums.push(EnumDefinition { name, line, values });
        Ok(())
    }

    fn parse_extend(&mut self, scope: &str) -> Result<(), ParseProblem> {
        let extendee = self.expect_word("the name of a message")?;
        self.expect_sign('{')?;
        while !self.take_sign('}') {
            if self.take_sign(';') {
                continue;
            }
            let mut field = self.parse_field(scope)?;
            field.name = format!("[{}]", qualified_name(scope, &field.name));
            let extension =
                ExtensionDefinition { extendee: extendee.clone(), scope: scope.to_owned(), field };
            self.file.extensions.push(extension);
        }
        Ok(())
    }

    fn parse_service(&mut self, package: &str) -> Result<(), ParseProblem> {
        let service = qualified_name(package, &self.expect_name("the name of the service")?);
        self.expect_sign('{')?;
        while !self.take_sign('}') {
            if self.take_sign(';') {
                continue;
            }
            let line = self.current_line();
            match self.expect_word("rpc or option")?.as_str() {
                "option" => self.skip_statement()?,
                "rpc" => {
                    let name = self.expect_name("the name of the method")?;
                    let input = self.parse_method_message()?;
                    if !self.take_word("returns") {
                        return Err(self.unexpected_token("\"returns\""));
                    }
                    let output = self.parse_method_message()?;
                    if !self.take_sign(';') {
                        self.skip_block()?;
                    }
                    let path = format!("/{service}/{name}");
                    let scope = package.to_owned();
                    self.file.methods.push(MethodDefinition { path, scope, input, output, line });
                }
                word => return Err((line, format!("{word:?} is neither rpc nor option"))),
            }
        }
        Ok(())
    }

    fn parse_method_message(&mut self) -> Result<String, ParseProblem> {
        self.expect_sign('(')?;
        if !matches!(self.peek_token(1), Some(ProtoToken::Sign(')'))) {
            self.take_word("stream");
        }
        let name = self.expect_word("the name of a message")?;
        self.expect_sign(')')?;
        Ok(name)
    }

    // ── What has no meaning here ─────────────────────────────────────────────────────────────

    /// Goes to the end of a statement.
    fn skip_statement(&mut self) -> Result<(), ParseProblem> {
        while !self.take_sign(';') {
            match self.peek_token(0) {
                Some(ProtoToken::Sign('{')) => self.skip_block()?,
                Some(_) => self.at += 1,
                None => return Err(self.unexpected_token("\";\"")),
            }
        }
        Ok(())
    }

    /// Goes past the options of a field, if it has some.
    fn skip_options(&mut self) -> Result<(), ParseProblem> {
        let mut depth = 0;
        loop {
            match self.peek_token(0) {
                Some(ProtoToken::Sign('[' | '{')) => depth += 1,
                Some(ProtoToken::Sign(']' | '}')) if depth > 0 => depth -= 1,
                Some(_) if depth > 0 => {}
                None if depth > 0 => return Err(self.unexpected_token("\"]\"")),
                _ => return Ok(()),
            }
            let begins_group = depth == 1 && self.peek_token(0) == Some(&ProtoToken::Sign('{'));
            if begins_group {
                return Ok(());
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn skip_block(&mut self) -> Result<(), ParseProblem> {
        self.expect_sign('{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.peek_token(0) {
                Some(ProtoToken::Sign('{')) => depth += 1,
                Some(ProtoToken::Sign('}')) => depth -= 1,
                Some(_) => {}
                None => return Err(self.unexpected_token("\"}\"")),
            }
            self.at += 1;
        }
        Ok(())
    }

    // ── Words ────────────────────────────────────────────────────────────────────────────────

    fn peek_token(&self, ahead: usize) -> Option<&ProtoToken> {
        self.tokens.get(self.at + ahead).map(|(token, _)| token)
    }

    fn peek_word(&self) -> Option<&str> {
        match self.peek_token(0) {
            Some(ProtoToken::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// The line of what comes next; at the end that of the last word.
    fn current_line(&self) -> usize {
        let token = self.tokens.get(self.at).or_else(|| self.tokens.last());
        token.map_or(1, |(_, line)| *line)
    }

    fn unexpected_token(&self, expected: &str) -> ParseProblem {
        let found =
            self.peek_token(0).map_or("the end of the file".to_owned(), ProtoToken::describe);
        (self.current_line(), format!("expected {expected}, found {found}"))
    }

    fn take_sign(&mut self, sign: char) -> bool {
        let is_next = self.peek_token(0) == Some(&ProtoToken::Sign(sign));
        self.at += usize::from(is_next);
        is_next
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is_next = self.peek_word() == Some(word);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect_sign(&mut self, sign: char) -> Result<(), ParseProblem> {
        if self.take_sign(sign) {
            Ok(())
        } else {
            Err(self.unexpected_token(&format!("\"{sign}\"")))
        }
    }

    /// A name that may have dots.
    fn expect_word(&mut self, what: &str) -> Result<String, ParseProblem> {
        let Some(ProtoToken::Word(word)) = self.peek_token(0) else {
            return Err(self.unexpected_token(what));
        };
        let word = word.clone();
        self.at += 1;
        Ok(word)
    }

    /// A name without dots.
    fn expect_name(&mut self, what: &str) -> Result<String, ParseProblem> {
        match self.peek_word() {
            Some(word) if !word.contains('.') => self.expect_word(what),
            _ => Err(self.unexpected_token(what)),
        }
    }

    fn expect_number(&mut self, what: &str) -> Result<String, ParseProblem> {
        let Some(ProtoToken::Number(number)) = self.peek_token(0) else {
            return Err(self.unexpected_token(what));
        };
        let number = number.clone();
        self.at += 1;
        Ok(number)
    }

    /// Texts that stand behind each other are one.
    fn expect_text(&mut self, what: &str) -> Result<String, ParseProblem> {
        let mut whole = None::<String>;
        while let Some(ProtoToken::Text(text)) = self.peek_token(0) {
            whole.get_or_insert_default().push_str(text);
            self.at += 1;
        }
        whole.ok_or_else(|| self.unexpected_token(what))
    }
}

fn kind_from_name(name: String, scope: &str) -> KindDefinition {
    match Scalar::from_name(&name) {
        Some(scalar) => KindDefinition::Scalar(scalar),
        None => KindDefinition::Named { name, scope: scope.to_owned() },
    }
}

/// A name in a scope.
pub(super) fn qualified_name(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

/// A whole number, in tens, eights or sixteens.
fn parse_integer(written: &str) -> Option<i64> {
    if let Some(digits) = written.strip_prefix("0x").or_else(|| written.strip_prefix("0X")) {
        return i64::from_str_radix(digits, 16).ok();
    }
    match written.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => i64::from_str_radix(digits, 8).ok(),
        _ => written.parse().ok(),
    }
}
