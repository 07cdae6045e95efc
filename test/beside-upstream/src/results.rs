//! Results as JSON lines, so that an interrupted task can continue.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use crate::{
    error::{SuiteError, failed},
    measure::{Measurement, Who},
};

/// File of results.
#[derive(Debug)]
pub(crate) struct Results {
    file: PathBuf,
    pub(crate) measurements: Vec<Measurement>,
}

impl Results {
    /// Reads the file, which may not exist.
    pub(crate) fn read(file: &Path) -> Result<Self, SuiteError> {
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.map_err(failed(file.display().to_string()))?,
        };
        let measurements = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Self { file: file.to_owned(), measurements })
    }

    /// Removes the results of a fault.
    pub(crate) fn remove(&mut self, fault: &str) -> Result<(), SuiteError> {
        self.measurements.retain(|measurement| measurement.fault != fault);
        let mut text = String::new();
        for measurement in &self.measurements {
            text.push_str(&serde_json::to_string(measurement)?);
            text.push('\n');
        }
        fs::write(&self.file, text).map_err(failed(self.file.display().to_string()))
    }

    /// `true` if the run has a result.
    pub(crate) fn contains(&self, fault: &str, who: Who, round: usize) -> bool {
        self.measurements.iter().any(|measurement| {
            (measurement.fault.as_str(), measurement.manager, measurement.round) == (fault, who, round)
        })
    }

    /// Appends a result to the file.
    pub(crate) fn add(&mut self, measurement: Measurement) -> Result<(), SuiteError> {
        let line = serde_json::to_string(&measurement)? + "\n";
        let file = OpenOptions::new().create(true).append(true).open(&self.file);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(failed(self.file.display().to_string()))?;
        self.measurements.push(measurement);
        Ok(())
    }
}
