"""What operators put into their own tools: a Grafana dashboard and Prometheus alert rules.

The files lie beside this module, written for the metrics of a server with default options.
`octavo metrics` prints them.
"""
