import os
import pathlib
import shutil
import subprocess


class KindCluster:
    def __init__(self, name=None, image=None):
        self.name = name
        self.kubeconfig_path = pathlib.Path(os.environ["KUBECONFIG"])
        self.kubectl_path = pathlib.Path(shutil.which("kubectl"))

    def create(self):
        """The server is running."""

    def delete(self):
        """The server is stopped by its owner."""

    def kubectl(self, *arguments, **options):
        command = [self.kubectl_path, *arguments]
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig_path)}
        return subprocess.check_output(command, env=environment, encoding="utf-8", **options)
