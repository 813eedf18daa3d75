"""What several detectors are made of; no detector itself."""
