//! Translates kubectl's dialect of JSONPath into RFC 9535.
//!
//! | kubectl | RFC 9535 |
//! |---|---|
//! | `.a\.b/c`, `a\.b/c` | `$["a.b/c"]` |
//! | `['a\.b']` | `$["a.b"]` |
//! | `['a.b','c']` | several queries: a dot also separates steps |
//! | `[?(@.a-b=="x")]` | `$[?(@["a-b"]=="x")]` |
//! | `[0]`, `[1:3]`, `[*]`, `..a`, `.*` | the same |

use std::iter::Peekable;
use std::str::Chars;

/// The most queries of one path. Each quoted name with a dot doubles them.
const QUERIES_MAX: usize = 64;

/// Returns the queries whose results, one after the other, are the path's, or what is wrong.
pub(super) fn queries(path: &str) -> Result<Vec<String>, String> {
    let path = path.trim();
    let relative = path.strip_prefix(['$', '@']);
    match relative.unwrap_or(path) {
        "" if relative.is_some() => Ok(vec!["$".to_owned()]),
        "" => Err("it is empty".to_owned()),
        steps => Translation::new(steps, "$").run(),
    }
}

struct Translation<'t> {
    letters: Peekable<Chars<'t>>,
    queries: Vec<String>,
}

impl<'t> Translation<'t> {
    fn new(steps: &'t str, root: &str) -> Self {
        Self { letters: steps.chars().peekable(), queries: vec![root.to_owned()] }
    }

    fn run(mut self) -> Result<Vec<String>, String> {
        let mut is_first = true;
        while let Some(letter) = self.letters.peek().copied() {
            match letter {
                '[' => {
                    self.letters.next();
                    let selectors = inside_brackets(&mut self.letters)?;
                    self.bracket(selectors.trim())?;
                }
                '.' => {
                    self.letters.next();
                    self.after_dot()?;
                }
                // Only the first name may lack its dot.
                _ if is_first => self.name()?,
                letter => return Err(format!("{letter:?} follows a bracket")),
            }
            is_first = false;
        }
        Ok(self.queries)
    }

    fn after_dot(&mut self) -> Result<(), String> {
        if self.letters.next_if_eq(&'.').is_some() {
            self.each("..");
            return match self.letters.peek() {
                Some('*') => self.star("*"),
                // `..[0]`: the bracket is next.
                Some('[') => Ok(()),
                _ => self.name(),
            };
        }
        match self.letters.peek() {
            Some('*') => self.star(".*"),
            // `.items.[0]`, as some write it.
            Some('[') => Ok(()),
            _ => self.name(),
        }
    }

    fn star(&mut self, star: &str) -> Result<(), String> {
        self.letters.next();
        self.each(star);
        Ok(())
    }

    fn name(&mut self) -> Result<(), String> {
        let mut name = String::new();
        while let Some(letter) = self.letters.next_if(|letter| !matches!(letter, '.' | '[')) {
            match letter {
                '\\' => name.push(self.letters.next().unwrap_or('\\')),
                '*' | '?' | '(' | ')' | ']' | '{' | '}' | '@' | '$' | '\'' | '"' => {
                    return Err(format!("{letter:?} is in a name"));
                }
                letter => name.push(letter),
            }
        }
        if name.is_empty() {
            return Err("it ends in a dot".to_owned());
        }
        self.each(&selector(&name));
        Ok(())
    }

    fn bracket(&mut self, selectors: &str) -> Result<(), String> {
        if let Some(condition) = selectors.strip_prefix('?') {
            let condition = self::condition(condition)?;
            self.each(&format!("[?{condition}]"));
            return Ok(());
        }
        if selectors.starts_with(['\'', '"']) {
            let mut alternatives = Vec::new();
            for name in quoted_names(selectors)? {
                alternatives.extend(name_or_steps(&name)?);
            }
            return self.alternatives(&alternatives);
        }
        let is_index =
            |letter: char| letter.is_ascii_digit() || matches!(letter, ':' | ',' | '-' | '*' | ' ');
        if selectors.is_empty() || !selectors.chars().all(is_index) {
            return Err(format!("[{selectors}] is no index, slice, quoted name or condition"));
        }
        self.each(&format!("[{}]", without_leading_zeros(selectors)));
        Ok(())
    }

    fn alternatives(&mut self, alternatives: &[String]) -> Result<(), String> {
        if self.queries.len() * alternatives.len() > QUERIES_MAX {
            return Err("it has too many quoted names".to_owned());
        }
        let queries = alternatives.iter().flat_map(|alternative| {
            self.queries.iter().map(move |query| format!("{query}{alternative}"))
        });
        self.queries = queries.collect();
        Ok(())
    }

    fn each(&mut self, selector: &str) {
        self.queries.iter_mut().for_each(|query| query.push_str(selector));
    }
}

/// The selector of a name. JSON's strings are strings of RFC 9535.
fn selector(name: &str) -> String {
    format!("[{}]", serde_json::Value::from(name))
}

/// The numbers of indexes without leading zeros, which RFC 9535 does not allow.
fn without_leading_zeros(selectors: &str) -> String {
    let mut shortened = String::new();
    let mut rest = selectors;
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        let end = from.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(from.len());
        let (number, after) = from.split_at(end);
        let significant = number.trim_start_matches('0');
        shortened.push_str(before);
        shortened.push_str(if significant.is_empty() { "0" } else { significant });
        rest = after;
    }
    shortened + rest
}

/// Reads up to the bracket that closes the one before the letters.
fn inside_brackets(letters: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let (mut inside, mut depth, mut quote) = (String::new(), 1_usize, None);
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (_, '\\') => {
                inside.push(letter);
                inside.extend(letters.next());
                continue;
            }
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '[') => depth += 1,
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
        if depth == 0 {
            return Ok(inside);
        }
        inside.push(letter);
    }
    Err("a bracket is not closed".to_owned())
}

/// Splits `'a','b'` into the quoted names, escapes unchanged.
fn quoted_names(selectors: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    let mut letters = selectors.chars().peekable();
    loop {
        while letters.next_if_eq(&' ').is_some() {}
        let open = letters.next_if(|letter| matches!(letter, '\'' | '"'));
        let open = open.ok_or_else(|| format!("[{selectors}] is no list of quoted names"))?;
        let mut name = String::new();
        loop {
            match letters.next() {
                None => return Err("a quoted name is not closed".to_owned()),
                Some('\\') => {
                    name.push('\\');
                    name.extend(letters.next());
                }
                Some(letter) if letter == open => break,
                Some(letter) => name.push(letter),
            }
        }
        names.push(name);
        while letters.next_if_eq(&' ').is_some() {}
        match letters.next() {
            None => return Ok(names),
            Some(',') => {}
            Some(letter) => return Err(format!("{letter:?} follows a quoted name")),
        }
    }
}

/// A quoted name as a selector. If it has a dot without `\`, kubectl takes it for steps: these too.
fn name_or_steps(quoted: &str) -> Result<Vec<String>, String> {
    let (mut name, mut letters, mut has_dot) = (String::new(), quoted.chars(), false);
    while let Some(letter) = letters.next() {
        has_dot |= letter == '.';
        name.push(if letter == '\\' { letters.next().unwrap_or('\\') } else { letter });
    }
    let mut alternatives = vec![selector(&name)];
    if has_dot && let Ok(steps) = Translation::new(quoted, "").run() {
        alternatives.extend(steps);
    }
    Ok(alternatives)
}

/// Translates the paths in a condition; literals and operators are the same in both dialects.
fn condition(condition: &str) -> Result<String, String> {
    let mut translated = String::new();
    let mut letters = condition.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => {
                translated.push(letter);
                while let Some(inside) = letters.next() {
                    translated.push(inside);
                    match inside {
                        '\\' => translated.extend(letters.next()),
                        inside if inside == letter => break,
                        _ => {}
                    }
                }
            }
            '@' | '$' => {
                let steps = path_in_condition(&mut letters)?;
                if steps.is_empty() {
                    translated.push(letter);
                    continue;
                }
                let queries = Translation::new(&steps, &letter.to_string()).run()?;
                // A condition compares one value: a quoted name with a dot is one name there.
                translated.extend(queries.into_iter().next());
            }
            letter => translated.push(letter),
        }
    }
    Ok(translated)
}

/// Reads a path up to the operator, blank or parenthesis after it.
fn path_in_condition(letters: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut path = String::new();
    let ends = |letter: &char| " \t=!<>)&|,".contains(*letter);
    while let Some(letter) = letters.next_if(|letter| !ends(letter)) {
        path.push(letter);
        match letter {
            '\\' => path.extend(letters.next()),
            '[' => {
                path.push_str(&inside_brackets(letters)?);
                path.push(']');
            }
            _ => {}
        }
    }
    Ok(path)
}
