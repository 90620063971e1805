"""What Python imports first if this directory is on its path; see `tests.support.ray_cluster.light_nodes`."""

import sys

if any(argument.endswith(("/bin/ray", "/autoscaler/_private/monitor.py")) for argument in sys.orig_argv[1:3]):
    from tests.support.ray_cluster import make_nodes_light

    make_nodes_light()
