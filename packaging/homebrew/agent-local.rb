# A formula for a tap. Before it is published: the address and the checksum of a release's source
# distribution. Python packages come from PyPI, as pip resolves them; llama.cpp is compiled with Metal.
class AgentLocal < Formula
  desc "Local chat agent for GPT-OSS in one process"
  url "file://#{__dir__}/../../dist/agent_local-0.1.0.tar.gz"
  license "Apache-2.0"

  depends_on "python@3.13"

  def install
    system formula_python, "-m", "venv", libexec
    system libexec/"bin/pip", "install", "--no-cache-dir", "#{buildpath}[browser]"
    bin.install_symlink libexec/"bin/agent"
    man1.install_symlink libexec/"share/man/man1/agent.1"
  end

  service do
    run [opt_bin/"agent", "serve"]
    keep_alive successful_exit: false
  end

  test do
    ENV["AGENT_HOME"] = testpath
    assert_match "408", shell_output("#{bin}/agent run --quiet 'What is 12*34?'")
  end

  private

  def formula_python
    Formula["python@3.13"].opt_bin/"python3.13"
  end
end
