//! Parser of scripts.

use std::{iter::Peekable, str::Chars};

use thiserror::Error;

/// Maximum nesting of commands and substitutions.
const MAX_DEPTH: u8 = 16;

/// Failure of [`parse`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum SyntaxError {
    /// The script ends within a command or a quote.
    #[error("unexpected end of file")]
    Incomplete,
    #[error("unexpected {0:?}")]
    Unexpected(String),
    /// Nested too deeply, or a part of the language that is not simulated.
    #[error("{0} is not simulated")]
    NotSimulated(String),
}

/// Command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Simple { words: Vec<Word>, redirects: Vec<Redirect> },
    Pipe(Vec<Self>),
    List(Vec<(Join, Self)>),
    For { name: String, words: Vec<Word>, body: Box<Self> },
    While { condition: Box<Self>, body: Box<Self> },
    If { condition: Box<Self>, then: Box<Self>, otherwise: Option<Box<Self>> },
}

/// Condition of a command in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Join {
    Always,
    /// The command before has succeeded.
    And,
    /// The command before has failed.
    Or,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Redirect {
    OutToErr,
    ErrToOut,
    OutToNull,
    ErrToNull,
}

/// Word, whose parts are expanded and joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word(pub(super) Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    Variable { name: String, is_quoted: bool },
    Command { script: Node, is_quoted: bool },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(Word),
    /// `;`, `|`, `&&` or `||`. A line's end is `;`.
    Operator(&'static str),
    Redirect(Redirect),
}

/// Parses a script.
pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    parse_nested(text, 0)
}

fn parse_nested(text: &str, depth: u8) -> Result<Node, SyntaxError> {
    if depth > MAX_DEPTH {
        return Err(SyntaxError::NotSimulated("deep nesting".to_owned()));
    }
    let tokens = Lexer { chars: text.chars().peekable(), depth }.tokens()?;
    let mut parser = Parser { tokens: tokens.into_iter().peekable(), depth };
    let list = parser.list(&[])?;
    match parser.tokens.next() {
        None => Ok(list),
        Some(token) => Err(unexpected(&token)),
    }
}

fn unexpected(token: &Token) -> SyntaxError {
    SyntaxError::Unexpected(match token {
        Token::Operator(operator) => (*operator).to_owned(),
        Token::Redirect(_) => ">".to_owned(),
        Token::Word(word) => keyword(word).unwrap_or_default().to_owned(),
    })
}

/// Text of a word without quotes and expansions.
fn keyword(word: &Word) -> Option<&str> {
    match word.0.as_slice() {
        [Part::Text(text)] => Some(text),
        _ => None,
    }
}

struct Lexer<'a> {
    chars: Peekable<Chars<'a>>,
    depth: u8,
}

impl Lexer<'_> {
    fn tokens(mut self) -> Result<Vec<Token>, SyntaxError> {
        let mut tokens = Vec::new();
        while let Some(&next) = self.chars.peek() {
            let token = match next {
                ' ' | '\t' | '\r' => {
                    self.chars.next();
                    continue;
                }
                '#' => {
                    while self.chars.next_if(|c| *c != '\n').is_some() {}
                    continue;
                }
                '\n' | ';' => {
                    self.chars.next();
                    Token::Operator(";")
                }
                '|' | '&' => {
                    self.chars.next();
                    match (next, self.chars.next_if_eq(&next)) {
                        ('|', None) => Token::Operator("|"),
                        ('|', Some(_)) => Token::Operator("||"),
                        ('&', Some(_)) => Token::Operator("&&"),
                        _ => return Err(SyntaxError::NotSimulated("&".to_owned())),
                    }
                }
                '>' => self.redirect('1')?,
                '<' | '(' | ')' => return Err(SyntaxError::NotSimulated(next.to_string())),
                '1' | '2' if self.chars.clone().nth(1) == Some('>') => {
                    self.chars.next();
                    self.redirect(next)?
                }
                _ => Token::Word(self.word()?),
            };
            tokens.push(token);
        }
        Ok(tokens)
    }

    fn redirect(&mut self, from: char) -> Result<Token, SyntaxError> {
        self.chars.next();
        self.chars.next_if_eq(&'>');
        while self.chars.next_if_eq(&' ').is_some() {}
        let mut target = String::new();
        while let Some(c) = self.chars.next_if(|c| !c.is_whitespace() && !";|)".contains(*c)) {
            target.push(c);
        }
        Ok(Token::Redirect(match (from, target.as_str()) {
            ('1', "&2" | "/dev/stderr") => Redirect::OutToErr,
            ('2', "&1" | "/dev/stdout") => Redirect::ErrToOut,
            ('1', "/dev/null") => Redirect::OutToNull,
            ('2', "/dev/null") => Redirect::ErrToNull,
            (_, "") => return Err(SyntaxError::Incomplete),
            (_, target) => return Err(SyntaxError::NotSimulated(format!("> {target}"))),
        }))
    }

    fn word(&mut self) -> Result<Word, SyntaxError> {
        let mut parts = Vec::new();
        let mut text: Option<String> = None;
        while let Some(&next) = self.chars.peek() {
            match next {
                ' ' | '\t' | '\r' | '\n' | ';' | '|' | '&' | '<' | '>' | '(' | ')' => break,
                '\'' => {
                    self.chars.next();
                    let quoted = self.until('\'')?;
                    text.get_or_insert_default().push_str(&quoted);
                }
                '\\' => {
                    self.chars.next();
                    match self.chars.next().ok_or(SyntaxError::Incomplete)? {
                        // The line continues.
                        '\n' => {}
                        escaped => text.get_or_insert_default().push(escaped),
                    }
                }
                '"' => {
                    self.chars.next();
                    text.get_or_insert_default();
                    self.quoted(&mut parts, &mut text)?;
                }
                '$' | '`' => self.expansion(false, &mut parts, &mut text)?,
                _ => {
                    self.chars.next();
                    text.get_or_insert_default().push(next);
                }
            }
        }
        parts.extend(text.map(Part::Text));
        Ok(Word(parts))
    }

    /// Reads the rest of a word in double quotes.
    fn quoted(&mut self, parts: &mut Vec<Part>, text: &mut Option<String>) -> Result<(), SyntaxError> {
        loop {
            match *self.chars.peek().ok_or(SyntaxError::Incomplete)? {
                '"' => {
                    self.chars.next();
                    return Ok(());
                }
                '$' | '`' => self.expansion(true, parts, text)?,
                '\\' => {
                    self.chars.next();
                    let escaped = self.chars.next().ok_or(SyntaxError::Incomplete)?;
                    let text = text.get_or_insert_default();
                    match escaped {
                        '\n' => {}
                        '"' | '\\' | '$' | '`' => text.push(escaped),
                        _ => text.extend(['\\', escaped]),
                    }
                }
                plain => {
                    self.chars.next();
                    text.get_or_insert_default().push(plain);
                }
            }
        }
    }

    /// Reads `$name`, `${name}`, `$(script)` or a script in backquotes.
    fn expansion(
        &mut self,
        is_quoted: bool,
        parts: &mut Vec<Part>,
        text: &mut Option<String>,
    ) -> Result<(), SyntaxError> {
        let part = if self.chars.next() == Some('`') {
            let script = self.until('`')?;
            Part::Command { script: parse_nested(&script, self.depth + 1)?, is_quoted }
        } else if self.chars.next_if_eq(&'(').is_some() {
            let script = self.parenthesized()?;
            Part::Command { script: parse_nested(&script, self.depth + 1)?, is_quoted }
        } else if self.chars.next_if_eq(&'{').is_some() {
            let name = self.until('}')?;
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name != "?" && (!name.chars().all(is_name) || !name.starts_with(|c: char| !c.is_ascii_digit()))
            {
                return Err(SyntaxError::NotSimulated(format!("${{{name}}}")));
            }
            Part::Variable { name, is_quoted }
        } else if self.chars.next_if_eq(&'?').is_some() {
            Part::Variable { name: "?".to_owned(), is_quoted }
        } else if let Some(special) = self.chars.next_if(|c| "#@*!$-".contains(*c) || c.is_ascii_digit()) {
            return Err(SyntaxError::NotSimulated(format!("${special}")));
        } else {
            let mut name = String::new();
            while let Some(c) = self.chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                name.push(c);
            }
            if name.is_empty() {
                text.get_or_insert_default().push('$');
                return Ok(());
            }
            Part::Variable { name, is_quoted }
        };
        parts.extend(text.take().map(Part::Text));
        parts.push(part);
        Ok(())
    }

    fn until(&mut self, end: char) -> Result<String, SyntaxError> {
        let mut text = String::new();
        loop {
            match self.chars.next() {
                None => return Err(SyntaxError::Incomplete),
                Some(c) if c == end => return Ok(text),
                Some(c) => text.push(c),
            }
        }
    }

    /// Reads up to the parenthesis that closes a substitution.
    fn parenthesized(&mut self) -> Result<String, SyntaxError> {
        let (mut text, mut open, mut quote) = (String::new(), 1_u32, None);
        loop {
            let c = self.chars.next().ok_or(SyntaxError::Incomplete)?;
            match (c, quote) {
                (_, Some(end)) if c == end => quote = None,
                ('\'' | '"', None) => quote = Some(c),
                ('(', None) => open += 1,
                (')', None) => open -= 1,
                _ => {}
            }
            if open == 0 {
                return Ok(text);
            }
            text.push(c);
        }
    }
}

struct Parser<I: Iterator<Item = Token>> {
    tokens: Peekable<I>,
    depth: u8,
}

impl<I: Iterator<Item = Token>> Parser<I> {
    /// Parses commands up to one of the keywords `ends`, which is not consumed, or to the end.
    fn list(&mut self, ends: &[&str]) -> Result<Node, SyntaxError> {
        let (mut commands, mut join) = (Vec::new(), Join::Always);
        loop {
            while self.tokens.next_if_eq(&Token::Operator(";")).is_some() {}
            match self.tokens.peek() {
                None if join == Join::Always && ends.is_empty() => return Ok(Node::List(commands)),
                None => return Err(SyntaxError::Incomplete),
                Some(Token::Word(word)) if keyword(word).is_some_and(|text| ends.contains(&text)) => {
                    return Ok(Node::List(commands));
                }
                Some(_) => {}
            }
            commands.push((join, self.pipe()?));
            join = match self.tokens.peek() {
                Some(Token::Operator("&&")) => Join::And,
                Some(Token::Operator("||")) => Join::Or,
                None | Some(Token::Operator(";")) => Join::Always,
                Some(token) => return Err(unexpected(token)),
            };
            self.tokens.next();
        }
    }

    fn pipe(&mut self) -> Result<Node, SyntaxError> {
        let first = self.command()?;
        let mut commands = vec![first];
        while self.tokens.next_if_eq(&Token::Operator("|")).is_some() {
            commands.push(self.command()?);
        }
        match (commands.pop(), commands.is_empty()) {
            (Some(only), true) => Ok(only),
            (last, _) => {
                commands.extend(last);
                Ok(Node::Pipe(commands))
            }
        }
    }

    fn command(&mut self) -> Result<Node, SyntaxError> {
        let first = self.tokens.peek().ok_or(SyntaxError::Incomplete)?;
        let first = if let Token::Word(word) = first { keyword(word).unwrap_or_default() } else { "" };
        match first {
            "for" | "while" | "if" => {}
            "do" | "done" | "then" | "else" | "fi" => return Err(SyntaxError::Unexpected(first.to_owned())),
            _ => return self.simple(),
        }
        let first = first.to_owned();
        self.tokens.next();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(SyntaxError::NotSimulated("deep nesting".to_owned()));
        }
        let node = match first.as_str() {
            "for" => {
                let Some(Token::Word(name)) = self.tokens.next() else { return Err(SyntaxError::Incomplete) };
                let name = keyword(&name).unwrap_or_default().to_owned();
                self.expect("in")?;
                let mut words = Vec::new();
                while let Some(Token::Word(_)) = self.tokens.peek() {
                    if let Some(Token::Word(word)) = self.tokens.next() {
                        words.push(word);
                    }
                }
                Node::For { name, words, body: self.body()? }
            }
            "while" => {
                let condition = Box::new(self.list(&["do"])?);
                Node::While { condition, body: self.body()? }
            }
            _ => {
                let condition = Box::new(self.list(&["then"])?);
                self.expect("then")?;
                let then = Box::new(self.list(&["else", "fi"])?);
                let otherwise =
                    if self.expect("else").is_ok() { Some(Box::new(self.list(&["fi"])?)) } else { None };
                self.expect("fi")?;
                Node::If { condition, then, otherwise }
            }
        };
        self.depth -= 1;
        Ok(node)
    }

    fn body(&mut self) -> Result<Box<Node>, SyntaxError> {
        while self.tokens.next_if_eq(&Token::Operator(";")).is_some() {}
        self.expect("do")?;
        let body = self.list(&["done"])?;
        self.expect("done")?;
        Ok(Box::new(body))
    }

    fn expect(&mut self, word: &str) -> Result<(), SyntaxError> {
        let is_word = |token: &Token| matches!(token, Token::Word(found) if keyword(found) == Some(word));
        match self.tokens.next_if(is_word) {
            Some(_) => Ok(()),
            None => Err(self.tokens.peek().map_or(SyntaxError::Incomplete, unexpected)),
        }
    }

    fn simple(&mut self) -> Result<Node, SyntaxError> {
        let (mut words, mut redirects) = (Vec::new(), Vec::new());
        while let Some(token) = self.tokens.next_if(|token| !matches!(token, Token::Operator(_))) {
            match token {
                Token::Word(word) => words.push(word),
                Token::Redirect(redirect) => redirects.push(redirect),
                Token::Operator(_) => {}
            }
        }
        match self.tokens.peek() {
            Some(token) if words.is_empty() && redirects.is_empty() => Err(unexpected(token)),
            _ => Ok(Node::Simple { words, redirects }),
        }
    }
}
