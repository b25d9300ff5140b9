//! A program that obeys lines on its standard input, and answers by lines on its output.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use uksm_testkit::child_process::ChildExit;

/// A running program. Dropping it ends it.
pub(crate) struct LineProgram {
    /// Its name in messages.
    name: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl LineProgram {
    /// Starts a program.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Result<LineProgram> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        Ok(LineProgram {
            name,
            child,
            input: input.with_context(|| format!("{name} has no input"))?,
            output: BufReader::new(output.with_context(|| format!("{name} has no output"))?),
        })
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a command.
    ///
    /// # Errors
    /// The program has ended.
    pub(crate) fn command(&mut self, command: &str) -> Result<()> {
        writeln!(self.input, "{command}").with_context(|| format!("{} does not listen", self.name))
    }

    /// Waits for the line that begins with this word; returns the number behind it. Lines before it
    /// go to `other`: a program may print text of its own.
    ///
    /// # Errors
    /// The program has ended, or answers no number.
    pub(crate) fn answer(&mut self, word: &str, other: fn(&str)) -> Result<u64> {
        let name = self.name;
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line)?;
            ensure!(read > 0, "{name} ended on its own");
            match line.trim().strip_prefix(word) {
                Some(number) => {
                    let number = number.parse();
                    return number.with_context(|| format!("{name} answered '{line}'"));
                }
                None => other(&line),
            }
        }
    }
}

impl Drop for LineProgram {
    fn drop(&mut self) {
        self.child.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_the_number_behind_the_word() {
        let mut command = Command::new("sh");
        let script = "while read line; do echo warning; echo \"$line\"; done";
        let mut program = LineProgram::start("a shell", command.args(["-c", script])).unwrap();
        program.command("digest 12").unwrap();
        assert_eq!(program.answer("digest ", |_| {}).unwrap(), 12);
        program.command("digest none").unwrap();
        let error = program.answer("digest ", |_| {}).unwrap_err().to_string();
        assert!(error.contains("a shell answered 'digest none"), "{error}");
    }
}
