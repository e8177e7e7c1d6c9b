-- Since layout 8: the readings of a device in a time, and the cases with withdrawn attempts, are found without a scan.
CREATE INDEX readings_by_device ON device_readings (run, device, at_ns);
CREATE INDEX withdrawn_attempts ON attempts (case_id) WHERE is_withdrawn;
